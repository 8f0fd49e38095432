#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/huggingface/tensor_names.h"
#include "trainers/huggingface/weights_reader.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Tensors = std::map<std::string, at::Tensor>;

HuggingFaceConfig Tiny(bool qk_norm, bool tied) {
  return {.qk_norm = qk_norm,
          .vocab_size = 12,
          .hidden_size = 8,
          .intermediate_size = 10,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 6,
          .max_position_embeddings = 32,
          .tie_word_embeddings = tied};
}

// Values that every type holds exactly.
Tensors RandomParameters(const HuggingFaceConfig& config) {
  Tensors parameters;
  for (const auto& [name, parameter] : HuggingFaceParameters(config)) {
    parameters[name] = at::randn(parameter.shape)
                           .to(at::kBFloat16)
                           .to(at::kHalf)
                           .to(at::kFloat);
  }
  return parameters;
}

class HuggingFaceWeightsTest : public testing::Test {
 protected:
  HuggingFaceWeightsTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  // Writes `parameters`, in the files of as many pipeline stages.
  void Write(const Tensors& parameters, const HuggingFaceConfig& config,
             at::ScalarType type, int shards) {
    std::vector<std::vector<TensorSource>> sources(static_cast<size_t>(shards));
    size_t count = 0;
    for (const auto& [name, tensor] : parameters)
      sources[count++ % sources.size()].push_back(*SourceOf(name, tensor));
    for (int shard = 0; shard < shards; ++shard) {
      const auto converted = ToHuggingFace(
          std::move(sources[static_cast<size_t>(shard)]), config, type);
      ASSERT_TRUE(converted.ok()) << converted.status();
      ASSERT_TRUE(WriteSafetensors(dir_ / SafetensorsShardName(shard, shards),
                                   *converted, {{"format", "pt"}})
                      .ok());
    }
    if (shards > 1) {
      ASSERT_TRUE(SaveSafetensorsIndex(dir_, shards).ok());
    }
  }

  const fs::path dir_;
};

TEST_F(HuggingFaceWeightsTest, ReadsWhatItWrites) {
  for (const bool qk_norm : {false, true}) {
    for (const auto& [type, shards] :
         {std::pair{at::kFloat, 1}, std::pair{at::kBFloat16, 3},
          std::pair{at::kHalf, 1}}) {
      const HuggingFaceConfig config = Tiny(qk_norm, /*tied=*/shards == 1);
      const Tensors parameters = RandomParameters(config);
      Write(parameters, config, type, shards);
      const auto weights = HuggingFaceWeights::Open(dir_, config);
      ASSERT_TRUE(weights.ok()) << weights.status();
      for (const auto& [name, expected] : parameters) {
        for (const at::ScalarType wanted : {at::kFloat, at::kDouble}) {
          const at::Tensor values =
              at::full(expected.sizes(), 7, expected.options().dtype(wanted));
          const absl::Status read = weights->Read({name, values});
          ASSERT_TRUE(read.ok()) << read;
          EXPECT_TRUE(values.equal(expected.to(wanted))) << name;
        }
      }
      RemoveOtherExports(dir_, /*num_shards=*/2);
    }
  }
}

TEST_F(HuggingFaceWeightsTest, FilesHaveTheNamesOfTransformers) {
  const HuggingFaceConfig config = Tiny(/*qk_norm=*/true, /*tied=*/false);
  const Tensors parameters = RandomParameters(config);
  Write(parameters, config, at::kFloat, /*shards=*/1);
  const auto file = LoadSafetensors(dir_ / "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const Tensors saved(file->tensors.begin(), file->tensors.end());
  EXPECT_THAT(saved, SizeIs(2 * 11 + 3));
  const at::Tensor qkv = parameters.at("block1.attention.qkv.weight");
  const at::Tensor expand = parameters.at("block1.mlp.expand.weight");
  const std::pair<const char*, at::Tensor> expected[] = {
      {"model.embed_tokens.weight", parameters.at("embedding.token.weight")},
      {"model.layers.1.input_layernorm.weight",
       parameters.at("block1.norm1.weight")},
      {"model.layers.1.self_attn.q_proj.weight", qkv.narrow(0, 0, 24)},
      {"model.layers.1.self_attn.k_proj.weight", qkv.narrow(0, 24, 12)},
      {"model.layers.1.self_attn.v_proj.weight", qkv.narrow(0, 36, 12)},
      {"model.layers.1.self_attn.q_norm.weight",
       parameters.at("block1.attention.q_norm.weight")},
      {"model.layers.1.self_attn.k_norm.weight",
       parameters.at("block1.attention.k_norm.weight")},
      {"model.layers.1.self_attn.o_proj.weight",
       parameters.at("block1.attention.projection.weight")},
      {"model.layers.1.post_attention_layernorm.weight",
       parameters.at("block1.norm2.weight")},
      {"model.layers.1.mlp.gate_proj.weight", expand.narrow(0, 0, 10)},
      {"model.layers.1.mlp.up_proj.weight", expand.narrow(0, 10, 10)},
      {"model.layers.1.mlp.down_proj.weight",
       parameters.at("block1.mlp.contract.weight")},
      {"model.norm.weight", parameters.at("norm.weight")},
      {"lm_head.weight", parameters.at("head.weight")},
  };
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(saved.count(name), 1) << name;
    EXPECT_TRUE(saved.at(name).equal(tensor)) << name;
  }
}

// The values of a whole parameter are gathered from all ranks.
TEST_F(HuggingFaceWeightsTest, WholeValuesAreRequestedOnceAndInOrder) {
  const HuggingFaceConfig config = Tiny(/*qk_norm=*/false, /*tied=*/true);
  std::vector<TensorSource> whole;
  std::vector<std::string> names, requested;
  for (const auto& [name, tensor] : RandomParameters(config)) {
    names.push_back(name);
    whole.push_back(*SourceOf(name, tensor));
    whole.back().values = [&requested, name = name, tensor = tensor] {
      requested.push_back(name);
      return tensor;
    };
  }
  const auto sources = ToHuggingFace(std::move(whole), config, at::kHalf);
  ASSERT_TRUE(sources.ok()) << sources.status();
  for (const TensorSource& source : *sources) {
    const at::Tensor values = source.values();
    EXPECT_EQ(values.sizes(), at::IntArrayRef(source.entry.shape));
    EXPECT_EQ(values.scalar_type(), at::kHalf);
  }
  EXPECT_EQ(requested, names);
}

// Every block of rows and columns, also of rows of several tensors.
TEST_F(HuggingFaceWeightsTest, ReadsParts) {
  const HuggingFaceConfig config = Tiny(/*qk_norm=*/false, /*tied=*/true);
  const Tensors parameters = RandomParameters(config);
  Write(parameters, config, at::kBFloat16, /*shards=*/2);
  const auto weights = HuggingFaceWeights::Open(dir_, config);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const std::string name = "block0.attention.qkv.weight";
  const at::Tensor whole = parameters.at(name);  // 24 + 12 + 12 rows
  for (int64_t begin = 0; begin < whole.size(0); begin += 3) {
    for (int64_t end = begin + 1; end <= whole.size(0); ++end) {
      for (const auto& [column, columns] : {std::pair{0, 8}, std::pair{3, 4}}) {
        // Not contiguous, as a slice of a larger tensor.
        const at::Tensor values =
            at::empty({end - begin, 9}).narrow(1, 1, columns);
        const absl::Status read =
            weights->Read({name, values, {begin, column}, whole.sizes().vec()});
        ASSERT_TRUE(read.ok()) << read;
        ASSERT_TRUE(values.equal(
            whole.narrow(0, begin, end - begin).narrow(1, column, columns)))
            << "rows " << begin << " to " << end;
      }
    }
  }
  const at::Tensor norm = at::empty({3});
  ASSERT_TRUE(weights->Read({"norm.weight", norm, {2}, {8}}).ok());
  EXPECT_TRUE(norm.equal(parameters.at("norm.weight").narrow(0, 2, 3)));
}

TEST_F(HuggingFaceWeightsTest, RefusesOtherParameters) {
  const HuggingFaceConfig config = Tiny(/*qk_norm=*/false, /*tied=*/true);
  Write(RandomParameters(config), config, at::kFloat, /*shards=*/1);
  const auto weights = HuggingFaceWeights::Open(dir_, config);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(
      std::string(weights->Read({"fc.weight", at::empty({2, 3})}).message()),
      HasSubstr("fc.weight of shape [2, 3]"));
  EXPECT_TRUE(
      absl::IsInvalidArgument(weights->Read({"norm.weight", at::empty({9})})));
  EXPECT_TRUE(
      absl::IsInternal(ToHuggingFace({*SourceOf("fc.weight", at::empty({2}))},
                                     config, at::kFloat)
                           .status()));
}

TEST_F(HuggingFaceWeightsTest, IgnoresWhatTransformersIgnores) {
  const HuggingFaceConfig config = Tiny(/*qk_norm=*/false, /*tied=*/true);
  Write(RandomParameters(config), config, at::kFloat, /*shards=*/1);
  auto file = LoadSafetensors(dir_ / "model.safetensors");
  ASSERT_TRUE(file.ok());
  file->tensors.emplace_back("lm_head.weight", at::empty({12, 8}));
  file->tensors.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq",
                             at::empty({3}));
  ASSERT_TRUE(SaveSafetensors(dir_ / "model.safetensors", file->tensors).ok());
  const auto weights = HuggingFaceWeights::Open(dir_, config);
  EXPECT_TRUE(weights.ok()) << weights.status();
}

struct Damage {
  const char* what;
  // Changes a folder of two shards and their index.
  std::function<void(const fs::path& dir)> change;
  absl::StatusCode code;
  std::vector<std::string> words;  // of the message
};

constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kSecond[] = "model-00002-of-00002.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kNormName[] = "model.norm.weight";

// Returns the shard that has the tensor; the first one if none has it.
std::string FileOf(const fs::path& dir, const std::string& tensor) {
  for (const char* file : {kFirst, kSecond}) {
    const auto header = LoadSafetensorsHeader(dir / file);
    for (const TensorEntry& entry : header->entries) {
      if (entry.name == tensor) return file;
    }
  }
  return kFirst;
}

// Rewrites the file of `tensor` with `other` in its place; removes it if that
// is not defined.
void Replace(const fs::path& dir, const std::string& tensor,
             const at::Tensor& other) {
  const fs::path path = dir / FileOf(dir, tensor);
  auto file = LoadSafetensors(path);
  std::erase_if(file->tensors,
                [&](const auto& entry) { return entry.first == tensor; });
  if (other.defined()) file->tensors.emplace_back(tensor, other);
  EXPECT_TRUE(SaveSafetensors(path, file->tensors).ok());
  EXPECT_TRUE(SaveSafetensorsIndex(dir, 2).ok());
}

void WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::vector<Damage> Damages() {
  using absl::StatusCode;
  return {
      {"no weights",
       [](const fs::path& dir) { fs::remove(dir / kIndexFile); },
       StatusCode::kNotFound,
       {"neither model.safetensors nor model.safetensors.index.json"}},
      {"an index that is not JSON",
       [](const fs::path& dir) { WriteFile(dir / kIndexFile, "{"); },
       StatusCode::kInvalidArgument,
       {kIndexFile, "weight_map has the file of each tensor"}},
      {"an index without files",
       [](const fs::path& dir) {
         WriteFile(dir / kIndexFile, R"({"weight_map": {"a": 1}})");
       },
       StatusCode::kInvalidArgument,
       {kIndexFile, "weight_map has the file of each tensor"}},
      {"a missing shard",
       [](const fs::path& dir) { fs::remove(dir / kSecond); },
       StatusCode::kNotFound,
       {kSecond, kIndexFile, "lists it"}},
      {"a torn shard",
       [](const fs::path& dir) {
         fs::resize_file(dir / kSecond, fs::file_size(dir / kSecond) - 1);
       },
       StatusCode::kDataLoss,
       {kSecond, "lists it"}},
      {"an index with the wrong file of a tensor",
       [](const fs::path& dir) {
         const std::string in = FileOf(dir, kNormName);
         const std::string other = in == kFirst ? kSecond : kFirst;
         WriteFile(dir / kIndexFile,
                   R"({"weight_map": {"model.norm.weight": ")" + other +
                       R"(", "lm_head.weight": ")" + in + "\"}}");
       },
       StatusCode::kInvalidArgument,
       {kIndexFile, "which does not have it"}},
      {"a tensor in both shards",
       [](const fs::path& dir) {
         const std::string in = FileOf(dir, kNormName);
         const fs::path other = dir / (in == kFirst ? kSecond : kFirst);
         auto file = LoadSafetensors(other);
         file->tensors.emplace_back(kNormName, at::empty({8}));
         EXPECT_TRUE(SaveSafetensors(other, file->tensors).ok());
       },
       StatusCode::kInvalidArgument,
       {"has the tensor model.norm.weight, as has "}},
      {"a missing tensor",
       [](const fs::path& dir) {
         Replace(dir, "model.layers.1.mlp.up_proj.weight", {});
       },
       StatusCode::kInvalidArgument,
       {"lacks the tensor model.layers.1.mlp.up_proj.weight of shape [10, 8]"}},
      {"an unknown tensor",
       [](const fs::path& dir) {
         Replace(dir, "model.layers.0.self_attn.q_proj.bias", at::empty({24}));
       },
       StatusCode::kInvalidArgument,
       {".safetensors: has the tensor model.layers.0.self_attn.q_proj.bias, "
        "which a model of its configuration lacks"}},
      {"another shape",
       [](const fs::path& dir) {
         Replace(dir, "model.layers.0.self_attn.k_proj.weight",
                 at::empty({24, 8}));
       },
       StatusCode::kInvalidArgument,
       {".safetensors: the tensor model.layers.0.self_attn.k_proj.weight is of "
        "shape [24, 8], not [12, 8]"}},
      {"another type",
       [](const fs::path& dir) {
         Replace(dir, kNormName, at::empty({8}, at::kDouble));
       },
       StatusCode::kInvalidArgument,
       {"model.norm.weight is of type Double, not F32, F16 or BF16"}},
  };
}

TEST_F(HuggingFaceWeightsTest, RefusesDamagedFolders) {
  const HuggingFaceConfig config = Tiny(/*qk_norm=*/false, /*tied=*/false);
  for (const Damage& damage : Damages()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    Write(RandomParameters(config), config, at::kFloat, /*shards=*/2);
    ASSERT_TRUE(HuggingFaceWeights::Open(dir_, config).ok());
    damage.change(dir_);
    const absl::Status status = HuggingFaceWeights::Open(dir_, config).status();
    EXPECT_EQ(status.code(), damage.code) << damage.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.string()));
    for (const std::string& word : damage.words)
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

}  // namespace
}  // namespace rankwise
