// The models that are not transformers. FLOPs count matrix products and
// convolutions, as usual; biases, activations and norms are left out.
#include <ATen/ops/relu.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "parallel/tensor/linear.h"
#include "third_party/absl/status_macros.h"
#include "trainers/layers/conv_relu_max_pool.h"
#include "trainers/layers/linear.h"
#include "trainers/layers/relu_max_pool.h"
#include "trainers/models/catalog.h"

namespace rankwise {
namespace {

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kClasses = 10;
constexpr int64_t kDefaultDepth = 2;
constexpr int64_t kDefaultWidth = 512;

// Division of a layer's weight along tp: by outputs, or by inputs.
enum class Divided { kNo, kColumns, kRows };

struct DenseConfig {
  int64_t inputs = 0, outputs = 0;
  bool of_batch = false;  // the input is the model's
  bool flatten = false;   // flatten each example's input first
  bool relu = false;      // apply to the output
  Divided divided = Divided::kNo;
  int tensor = 1;  // ranks along tp
};

// Runs `linear`, with inputs and outputs divided according to `config`.
torch::Tensor ForwardDense(torch::nn::LinearImpl& linear,
                           const torch::Tensor& x, const DenseConfig& config,
                           const TensorParallel& tp) {
  switch (config.divided) {
    case Divided::kColumns:
      return ColumnParallelLinear(x, linear.weight, linear.bias,
                                  /*tokens=*/0, tp);
    case Divided::kRows:
      return RowParallelLinear(x, linear.weight, linear.bias, tp);
    case Divided::kNo:
      break;
  }
  return Linear(x, linear.weight, linear.bias);
}

void Divide(const torch::nn::LinearImpl& linear, const DenseConfig& config,
            LayerContext& context) {
  if (config.divided == Divided::kColumns) {
    context.Divide(linear.weight, {.dim = 0, .blocks = {config.outputs}});
    context.Divide(linear.bias, {.dim = 0, .blocks = {config.outputs}});
  } else if (config.divided == Divided::kRows) {
    context.Divide(linear.weight, {.dim = 1, .blocks = {config.inputs}});
  }
}

// torch.nn.Linear. [B, inputs] (with `flatten`, any shape with `inputs` values)
// to [B, outputs].
LayerSpec DenseLayer(const std::string& name, const DenseConfig& config) {
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {config.outputs};
  spec.parameters = (config.inputs + 1) * config.outputs;
  spec.flops = 2.0 * static_cast<double>(config.inputs * config.outputs);
  const int64_t columns =
      config.divided == Divided::kColumns ? config.tensor : 1;
  const int64_t rows = config.divided == Divided::kRows ? config.tensor : 1;
  const int64_t inputs = config.inputs / rows,
                outputs = config.outputs / columns;
  spec.part_shape = {outputs};
  spec.part_parameters = {{outputs, inputs}, {outputs}};
  // The input, which a ReLU before it also stores. A batch counts only if it is
  // copied: images, to channels-first when flattened, or by autocast. It needs
  // no gradient, so autocast's copy of the weights is not stored.
  const bool is_copy = !config.of_batch || config.flatten;
  (is_copy ? spec.kept.values : spec.kept.cast_values) =
      static_cast<double>(inputs);
  if (!config.of_batch)
    spec.kept.cast_weights = static_cast<double>(inputs * outputs);
  if (config.divided == Divided::kRows && config.tensor > 1)
    spec.exchanged_along_tp = static_cast<double>(config.outputs);
  spec.build = [config](LayerContext& context) {
    auto linear =
        std::make_shared<torch::nn::LinearImpl>(config.inputs, config.outputs);
    Divide(*linear, config, context);
    return Layer{
        linear, [linear, config,
                 tp = context.parallel.tensor](const torch::Tensor& input) {
          torch::Tensor x = ForwardDense(
              *linear, config.flatten ? input.flatten(1) : input, config, tp);
          return config.relu ? x.relu_() : x;
        }};
  };
  return spec;
}

// [B, features] to the same; no parameters.
LayerSpec ReluLayer(const std::string& name, int64_t features, int tensor) {
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {features};
  spec.part_shape = {features / tensor};
  spec.keeps_input = false;  // it stores its output instead
  spec.build = [](LayerContext&) {
    return Layer{nullptr,
                 [](const torch::Tensor& input) { return at::relu(input); }};
  };
  return spec;
}

// 3x3 convolution, with `batch_norm` a BatchNorm2d (both then in a Sequential,
// in which it can be replaced), ReLU and 2x2 max pooling: [B, in, side, side]
// to [B, out, side / 2, side / 2].
LayerSpec ConvLayer(const std::string& name, int64_t in, int64_t out,
                    int64_t side, bool batch_norm, bool of_batch) {
  constexpr int64_t kKernel = 3;
  const int64_t weights = in * kKernel * kKernel * out;
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {out, side / 2, side / 2};
  spec.parameters = weights + (batch_norm ? 3 : 1) * out;
  spec.flops = 2.0 * static_cast<double>(weights * side * side);
  spec.part_parameters = {{out, in, kKernel, kKernel}, {out}};
  if (batch_norm)
    spec.part_parameters.insert(spec.part_parameters.end(), 2, {out});
  const auto pixels = static_cast<double>(side * side);
  const auto inputs = static_cast<double>(in) * pixels,
             outputs = static_cast<double>(out) * pixels;
  (of_batch ? spec.kept.cast_values : spec.kept.values) = inputs;
  if (batch_norm) spec.kept.values += outputs;  // its input
  spec.kept.pooled_values = outputs / 4;
  spec.kept.cast_weights = static_cast<double>(weights);
  spec.build = [in, out, batch_norm](LayerContext&) {
    const torch::nn::Conv2d conv(
        torch::nn::Conv2dOptions(in, out, kKernel).padding(1));
    if (!batch_norm) {
      return Layer{conv.ptr(), [conv](const torch::Tensor& input) {
                     return ConvReluMaxPool(input, conv->weight, conv->bias);
                   }};
    }
    torch::nn::Sequential block;
    block->push_back("conv", conv);
    block->push_back("norm", torch::nn::BatchNorm2d(out));
    return Layer{block.ptr(), [block](const torch::Tensor& input) mutable {
                   return ReluMaxPool(block->forward(input));
                 }};
  };
  return spec;
}

// Returns a classifier of 32x32 colour images without layers.
ModelSpec ImageModel(const ModelConfig& config) {
  ModelSpec spec;
  spec.name = config.name;
  spec.example_shape = {3, 32, 32};
  spec.num_classes = kClasses;
  spec.default_dataset = "synthetic";
  return spec;
}

// Returns a regression model of vectors by mean squared error, without layers.
ModelSpec RegressionModel(const ModelConfig& config, int64_t features) {
  ModelSpec spec;
  spec.name = config.name;
  spec.loss = LossKind::kMeanSquaredError;
  spec.example_shape = {features};
  return spec;
}

}  // namespace

absl::StatusOr<ModelSpec> LinearSpec(const ModelConfig& config) {
  ModelSpec spec = RegressionModel(config, 10);
  spec.default_dataset = "linear";
  spec.default_optimizer = "sgd";
  spec.default_learning_rate = 0.01;
  spec.layers = {
      DenseLayer("fc", {.inputs = 10, .outputs = 1, .of_batch = true})};
  return spec;
}

absl::StatusOr<ModelSpec> SimpleCnnSpec(const ModelConfig& config) {
  const bool batch_norm = config.name == "simple_cnn_bn";
  ModelSpec spec = ImageModel(config);
  spec.layers = {ConvLayer("conv1", 3, 32, 32, batch_norm, /*of_batch=*/true),
                 ConvLayer("conv2", 32, 64, 16, batch_norm, /*of_batch=*/false),
                 DenseLayer("fc1", {.inputs = 64 * 8 * 8,
                                    .outputs = 512,
                                    .flatten = true,
                                    .relu = true}),
                 DenseLayer("fc2", {.inputs = 512, .outputs = kClasses})};
  return spec;
}

absl::StatusOr<ModelSpec> MlpSpec(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckSizeFlag("depth", config.depth, kMostBlocks));
  RETURN_IF_ERROR(CheckSizeFlag("width", config.width, kMostFeatures));
  RETURN_IF_ERROR(
      CheckSizeFlag("input_width", config.input_width, kMostFeatures));
  RETURN_IF_ERROR(CheckSizeFlag("classes", config.classes, kMostFeatures));
  const int64_t depth = config.depth > 0 ? config.depth : kDefaultDepth;
  const int64_t width = config.width > 0 ? config.width : kDefaultWidth;
  RETURN_IF_ERROR(
      CheckDivides("features of --width", width, config.split.tensor));
  ModelSpec spec = ImageModel(config);
  const bool of_images = config.input_width == 0;
  if (!of_images) spec.example_shape = {config.input_width};
  if (config.classes > 0) spec.num_classes = config.classes;
  const int64_t inputs = of_images ? kPixels : config.input_width;
  for (int64_t i = 0; i <= depth; ++i) {
    // In pairs, by columns and then by rows; a last one without a partner is
    // undivided on every rank.
    const Divided divided = i % 2 == 1   ? Divided::kRows
                            : i == depth ? Divided::kNo
                                         : Divided::kColumns;
    spec.layers.push_back(
        DenseLayer(absl::StrCat("fc", i + 1),
                   {.inputs = i == 0 ? inputs : width,
                    .outputs = i == depth ? spec.num_classes : width,
                    .of_batch = i == 0,
                    .flatten = i == 0 && of_images,
                    .relu = i < depth,
                    .divided = divided,
                    .tensor = config.split.tensor}));
  }
  return spec;
}

absl::StatusOr<ModelSpec> MpMlpSpec(const ModelConfig& config) {
  ModelSpec spec = RegressionModel(config, 1024);
  spec.default_dataset = "regression";
  const int tensor = config.split.tensor;
  RETURN_IF_ERROR(CheckDivides("features of fc1", 2048, tensor));
  spec.layers = {DenseLayer("fc1", {.inputs = 1024,
                                    .outputs = 2048,
                                    .of_batch = true,
                                    .divided = Divided::kColumns,
                                    .tensor = tensor}),
                 ReluLayer("relu", 2048, tensor),
                 DenseLayer("fc2", {.inputs = 2048,
                                    .outputs = 1024,
                                    .divided = Divided::kRows,
                                    .tensor = tensor})};
  return spec;
}

}  // namespace rankwise
