#include "trainers/huggingface/tensor_names.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Name and shape of a tensor.
using Part = std::pair<std::string, std::vector<int64_t>>;

HuggingFaceParameter Stacked(std::vector<Part> parts) {
  HuggingFaceParameter parameter;
  parameter.shape = parts[0].second;
  parameter.shape[0] = 0;
  for (auto& [name, shape] : parts) {
    const int64_t rows = shape[0];
    parameter.tensors.push_back(
        {std::move(name), std::move(shape), parameter.shape[0]});
    parameter.shape[0] += rows;
  }
  return parameter;
}

void AddBlock(int64_t index, const HuggingFaceConfig& config,
              std::map<std::string, HuggingFaceParameter>& parameters) {
  const int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
  const int64_t queries = config.num_attention_heads * config.head_dim;
  const int64_t keys = config.num_key_value_heads * config.head_dim;
  const std::string block = absl::StrCat("block", index, ".");
  const auto named = [&](const char* name) {
    return absl::StrCat("model.layers.", index, ".", name, ".weight");
  };
  const auto add = [&](const char* name, std::vector<Part> parts) {
    parameters[absl::StrCat(block, name, ".weight")] =
        Stacked(std::move(parts));
  };
  add("norm1", {{named("input_layernorm"), {hidden}}});
  add("attention.qkv", {{named("self_attn.q_proj"), {queries, hidden}},
                        {named("self_attn.k_proj"), {keys, hidden}},
                        {named("self_attn.v_proj"), {keys, hidden}}});
  if (config.qk_norm) {
    add("attention.q_norm", {{named("self_attn.q_norm"), {config.head_dim}}});
    add("attention.k_norm", {{named("self_attn.k_norm"), {config.head_dim}}});
  }
  add("attention.projection", {{named("self_attn.o_proj"), {hidden, queries}}});
  add("norm2", {{named("post_attention_layernorm"), {hidden}}});
  add("mlp.expand", {{named("mlp.gate_proj"), {ffn, hidden}},
                     {named("mlp.up_proj"), {ffn, hidden}}});
  add("mlp.contract", {{named("mlp.down_proj"), {hidden, ffn}}});
}

}  // namespace

std::map<std::string, HuggingFaceParameter> HuggingFaceParameters(
    const HuggingFaceConfig& config) {
  const int64_t vocabulary = config.vocab_size, hidden = config.hidden_size;
  std::map<std::string, HuggingFaceParameter> parameters;
  parameters["embedding.token.weight"] =
      Stacked({{"model.embed_tokens.weight", {vocabulary, hidden}}});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    AddBlock(i, config, parameters);
  parameters["norm.weight"] = Stacked({{"model.norm.weight", {hidden}}});
  if (!config.tie_word_embeddings) {
    parameters["head.weight"] =
        Stacked({{"lm_head.weight", {vocabulary, hidden}}});
  }
  return parameters;
}

absl::StatusOr<std::vector<TensorSource>> ToHuggingFace(
    std::vector<TensorSource> whole, const HuggingFaceConfig& config,
    torch::ScalarType type) {
  const auto parameters = HuggingFaceParameters(config);
  std::vector<TensorSource> sources;
  for (TensorSource& source : whole) {
    const auto found = parameters.find(source.entry.name);
    if (found == parameters.end() ||
        found->second.shape != source.entry.shape) {
      return absl::InternalError(
          absl::StrCat("the parameter ", source.entry.name,
                       " has no equivalent in Hugging Face's models"));
    }
    // The tensors of a parameter share its values.
    const auto values = std::make_shared<torch::Tensor>();
    for (const HuggingFaceTensor& tensor : found->second.tensors) {
      const int64_t first = tensor.first_row, rows = tensor.shape[0];
      const bool is_last = first + rows == found->second.shape[0];
      sources.push_back({{tensor.name, type, tensor.shape},
                         [=, all = source.values]() -> torch::Tensor {
                           if (first == 0) *values = all();
                           const torch::Tensor whole_values = *values;
                           if (is_last) values->reset();
                           return whole_values.narrow(0, first, rows).to(type);
                         }});
    }
  }
  RETURN_IF_ERROR(SetOffsets(sources));
  return sources;
}

}  // namespace rankwise
