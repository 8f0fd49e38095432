// Checks the layer descriptions of every model against the layers as built.

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trainers/models/model.h"

namespace rankwise {
namespace {

int64_t CountParameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters())
    count += parameter.numel();
  return count;
}

using Shapes = std::multiset<std::vector<int64_t>>;

// Returns the parameter shapes; empty for a layer without a module.
Shapes ShapesOf(const torch::nn::Module* module) {
  Shapes shapes;
  if (module == nullptr) return shapes;
  for (const torch::Tensor& parameter : module->parameters())
    shapes.insert(parameter.sizes().vec());
  return shapes;
}

ModelSpec SpecOf(const ModelConfig& config) {
  absl::StatusOr<ModelSpec> spec = MakeModelSpec(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

std::shared_ptr<Model> Seeded(const ModelSpec& spec,
                              const std::vector<LayerRange>& kept) {
  at::manual_seed(11);
  return std::make_shared<Model>(spec, kept);
}

torch::Tensor SomeInput(const ModelSpec& spec, int64_t examples) {
  std::vector<int64_t> shape = spec.example_shape;
  shape.insert(shape.begin(), examples);
  return spec.num_classes > 0 && spec.example_shape.size() == 1 &&
                 spec.target_sequence.has_value()
             ? at::randint(0, spec.num_classes, shape, at::kLong)
             : at::randn(shape);
}

class LayerSpecTest : public ::testing::TestWithParam<ModelConfig> {
 protected:
  const ModelSpec spec_ = SpecOf(GetParam());
  const size_t layers_ = spec_.layers.size();
};

TEST_P(LayerSpecTest, ShapesAndParametersAreThoseOfTheLayersBuilt) {
  const auto model = Seeded(spec_, {{0, layers_}});
  EXPECT_EQ(CountParameters(*model), spec_.parameters());
  torch::Tensor x = SomeInput(spec_, 2);
  for (size_t i = 0; i < layers_; ++i) {
    const LayerSpec& layer = spec_.layers[i];
    x = model->Forward(x, {i, i + 1});
    EXPECT_EQ(x.sizes().slice(1).vec(), layer.output_shape) << layer.name;
    const torch::nn::Module* module = nullptr;
    const auto children = model->named_children();
    if (const auto* found = children.find(layer.name)) module = found->get();
    EXPECT_EQ(module == nullptr ? 0 : CountParameters(*module),
              layer.parameters)
        << layer.name;
    EXPECT_EQ(ShapesOf(module), Shapes(layer.part_parameters.begin(),
                                       layer.part_parameters.end()))
        << layer.name;
  }
}

TEST_P(LayerSpecTest, PartsHaveTheWholesWeightsAndChainToItsOutput) {
  const auto whole = Seeded(spec_, {{0, layers_}});
  const torch::Tensor input = SomeInput(spec_, 3);
  const torch::Tensor expected = whole->Forward(input);
  for (size_t cut = 1; cut < layers_; ++cut) {
    const auto first = Seeded(spec_, {{0, cut}});
    const auto second = Seeded(spec_, {{cut, layers_}});
    const torch::Tensor between = first->Forward(input, {0, cut});
    EXPECT_TRUE(second->Forward(between, {cut, layers_}).equal(expected))
        << "cut before layer " << cut;
    const auto weights = whole->named_parameters();
    for (const auto& part : {first, second}) {
      for (const auto& entry : part->named_parameters()) {
        const torch::Tensor* same = weights.find(entry.key());
        if (same != nullptr) {
          EXPECT_TRUE(entry.value().equal(*same)) << entry.key();
        } else {
          ASSERT_EQ(part->copies().size(), 1u) << entry.key();
          EXPECT_EQ(part->copies()[0].copy_name, entry.key());
          EXPECT_TRUE(entry.value().equal(weights[part->copies()[0].name]));
        }
      }
    }
  }
}

TEST_P(LayerSpecTest, AGapIsRefused) {
  const auto model = Seeded(spec_, {{0, 1}});
  EXPECT_THROW(model->Forward(SomeInput(spec_, 1), {0, layers_ + 1}),
               c10::Error);
}

std::vector<ModelConfig> Configs() {
  ModelConfig deep_mlp;
  deep_mlp.name = "mlp";
  deep_mlp.depth = 4;
  deep_mlp.width = 40;
  ModelConfig wide_mlp;  // for vectors
  wide_mlp.name = "mlp";
  wide_mlp.width = wide_mlp.input_width = wide_mlp.classes = 24;
  ModelConfig gpt;
  gpt.name = "gpt";
  gpt.depth = 2;
  gpt.width = 64;
  gpt.sequence_length = 12;
  ModelConfig untied = gpt;
  untied.tied_head = false;
  ModelConfig vit;
  vit.name = "vit";
  vit.depth = 2;
  vit.width = 64;
  ModelConfig llama;
  llama.name = "llama";
  llama.depth = 2;
  llama.width = 64;
  llama.kv_heads = 1;
  llama.sequence_length = 12;
  ModelConfig qwen = llama;
  qwen.tied_head = false;
  qwen.kv_heads = 2;
  qwen.qk_norm = true;
  llama.tied_head = true;
  return {{.name = "simple_cnn"},
          {.name = "simple_cnn_bn"},
          {.name = "linear"},
          {.name = "mp_mlp"},
          deep_mlp,
          wide_mlp,
          gpt,
          untied,
          vit,
          llama,
          qwen};
}

INSTANTIATE_TEST_SUITE_P(
    Models, LayerSpecTest, ::testing::ValuesIn(Configs()),
    [](const ::testing::TestParamInfo<ModelConfig>& info) {
      return info.param.name + (info.param.input_width > 0 ? "_vectors" : "") +
             (info.param.tied_head.value_or(true) ? "" : "_untied");
    });

// Compares with a file of one line per model: the losses of three steps of SGD
// at rate 0.1 with torch.nn's own transformer layers
// (goldens/make_transformer_losses.py).
void ExpectLosses(const ModelSpec& spec, const torch::Tensor& data,
                  const torch::Tensor& target) {
  std::ifstream file("trainers/models/goldens/transformer_losses.txt");
  std::string name;
  double losses[3];
  while (file >> name >> losses[0] >> losses[1] >> losses[2]) {
    if (name == spec.name) break;
  }
  ASSERT_EQ(name, spec.name);
  at::manual_seed(7);
  Model model(spec);
  for (const double expected : losses) {
    const torch::Tensor loss = Loss(spec.loss, model.Forward(data), target);
    EXPECT_NEAR(loss.item<double>(), expected, 2e-5 * expected);
    loss.backward();
    at::NoGradGuard no_grad;
    for (torch::Tensor& parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().reset();
    }
  }
}

TEST(TransformerGoldenTest, GptTrainsAsItsPythonCounterpart) {
  ModelConfig config;
  config.name = "gpt";
  config.depth = 2;
  config.width = 64;
  config.sequence_length = 16;
  const torch::Tensor sequence =
      (at::arange(2 * 17, at::kLong).view({2, 17}) * 7).remainder(256);
  ExpectLosses(SpecOf(config), sequence.slice(1, 0, 16),
               sequence.slice(1, 1, 17));
}

TEST(TransformerGoldenTest, VitTrainsAsItsPythonCounterpart) {
  ModelConfig config;
  config.name = "vit";
  config.depth = 2;
  config.width = 64;
  const torch::Tensor images = at::arange(2 * 3 * 32 * 32, at::kLong)
                                   .to(at::kFloat)
                                   .sin()
                                   .view({2, 3, 32, 32});
  ExpectLosses(SpecOf(config), images,
               at::tensor(std::vector<int64_t>{3, 8}, at::kLong));
}

}  // namespace
}  // namespace rankwise
