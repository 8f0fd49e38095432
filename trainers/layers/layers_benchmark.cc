// Compares these layers with ATen's functions, forward and backward together;
// the first layer of SimpleCNN separately, forward (0) or backward (1).
//   bazel run //trainers/layers:layers_benchmark
// Arguments: bf16 (0 or 1), then for attention examples, tokens, heads,
// key-value heads and features of a head, for GELU rows and features, for
// SimpleCNN's layer the direction. One thread; two for SimpleCNN's layer. For
// linear layers under autocast to bf16: threads, rows, inputs and outputs, with
// weights that are not in the caches.
#include <cstdint>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "ATen/autocast_mode.h"
#include "benchmark/benchmark.h"
#include "torch/csrc/autograd/autograd.h"
#include "trainers/layers/attention.h"
#include "trainers/layers/conv_relu_max_pool.h"
#include "trainers/layers/gelu.h"
#include "trainers/layers/linear.h"

namespace rankwise {
namespace {

at::TensorOptions Type(const benchmark::State& state) {
  return at::TensorOptions(state.range(0) == 1 ? at::kBFloat16 : at::kFloat);
}

template <typename Layer>
void Train(benchmark::State& state, at::IntArrayRef input,
           at::IntArrayRef output, const Layer& layer) {
  at::set_num_threads(1);
  const at::Tensor x = at::randn(input, Type(state)).requires_grad_();
  const at::Tensor gradient = at::randn(output, Type(state));
  for (auto _ : state) torch::autograd::backward({layer(x)}, {gradient});
}

template <typename Layer>
void TrainAttention(benchmark::State& state, const Layer& layer) {
  const int64_t heads = state.range(3), kv_heads = state.range(4),
                features = state.range(5);
  Train(state,
        {state.range(1), state.range(2), (heads + 2 * kv_heads) * features},
        {state.range(1), state.range(2), heads * features}, layer);
}

void BM_SelfAttention(benchmark::State& state) {
  TrainAttention(state, [&](const at::Tensor& x) {
    return SelfAttention(x, state.range(3), state.range(4), /*causal=*/true);
  });
}

void BM_AtenAttention(benchmark::State& state) {
  TrainAttention(state, [&](const at::Tensor& x) {
    const int64_t heads = state.range(3), kv_heads = state.range(4);
    const std::vector<at::Tensor> qkv =
        x.unflatten(-1, {-1, state.range(5)})
            .transpose(1, 2)
            .split_with_sizes({heads, kv_heads, kv_heads}, 1);
    return at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0,
                                            /*is_causal=*/true, {},
                                            /*enable_gqa=*/heads != kv_heads)
        .transpose(1, 2)
        .flatten(2);
  });
}

void BM_TanhGelu(benchmark::State& state) {
  Train(state, {state.range(1), state.range(2)},
        {state.range(1), state.range(2)}, TanhGelu);
}

void BM_AtenGelu(benchmark::State& state) {
  Train(state, {state.range(1), state.range(2)},
        {state.range(1), state.range(2)},
        [](const at::Tensor& x) { return at::gelu(x, "tanh"); });
}

template <typename Layer>
void TrainLinear(benchmark::State& state, const Layer& layer) {
  constexpr int64_t kBytes = 128 << 20;  // of weights and gradients
  const int64_t rows = state.range(1), inputs = state.range(2),
                outputs = state.range(3);
  at::set_num_threads(static_cast<int>(state.range(0)));
  std::vector<at::Tensor> weights, biases;
  for (int64_t i = 0; i < kBytes / (8 * inputs * outputs); ++i) {
    weights.push_back(at::randn({outputs, inputs}).requires_grad_());
    biases.push_back(at::randn({outputs}).requires_grad_());
    weights.back().mutable_grad() = at::empty({outputs, inputs});
  }
  const at::Tensor x =
      at::randn({rows, inputs}).to(at::kBFloat16).requires_grad_();
  const at::Tensor gradient = at::randn({rows, outputs}).to(at::kBFloat16);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  size_t i = 0;
  for (auto _ : state) {
    i = (i + 1) % weights.size();
    weights[i].mutable_grad().reset();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor y = layer(x, weights[i], biases[i]);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    torch::autograd::backward({y}, {gradient});
  }
}

void BM_Linear(benchmark::State& state) { TrainLinear(state, Linear); }

void BM_AtenLinear(benchmark::State& state) {
  TrainLinear(state, [](const auto& x, const auto& weight, const auto& bias) {
    return at::linear(x, weight, bias);
  });
}

void BM_ConvReluMaxPool(benchmark::State& state) {
  at::set_num_threads(2);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, state.range(0) == 1);
  const at::Tensor x =
      at::randn({64, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weight = at::randn({32, 3, 3, 3}).requires_grad_();
  const at::Tensor bias = at::randn({32}).requires_grad_();
  const at::Tensor y = ConvReluMaxPool(x, weight, bias);
  const at::Tensor gradient = at::randn_like(y);
  for (auto _ : state) {
    if (state.range(1) == 0)
      ConvReluMaxPool(x, weight, bias);
    else
      torch::autograd::backward({y}, {gradient}, /*retain_graph=*/true);
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

void AttentionSizes(benchmark::internal::Benchmark* measured) {
  measured->Unit(benchmark::kMillisecond);
  for (const int64_t bf16 : {0, 1}) {
    measured->Args({bf16, 8, 128, 4, 4, 32});
    measured->Args({bf16, 8, 256, 6, 6, 64});
    measured->Args({bf16, 8, 256, 6, 2, 64});
    measured->Args({bf16, 2, 1024, 12, 12, 64});
  }
}

void GeluSizes(benchmark::internal::Benchmark* measured) {
  measured->Unit(benchmark::kMillisecond);
  for (const int64_t bf16 : {0, 1}) measured->Args({bf16, 1024, 512});
}

void LinearSizes(benchmark::internal::Benchmark* measured) {
  measured->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const int64_t threads : {1, 2}) {
    measured->Args({threads, 64, 4096, 512});
    measured->Args({threads, 256, 4096, 512});
    measured->Args({threads, 64, 1024, 1024});
  }
}

BENCHMARK(BM_ConvReluMaxPool)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->ArgsProduct({{0, 1}, {0, 1}});
BENCHMARK(BM_SelfAttention)->Apply(AttentionSizes);
BENCHMARK(BM_AtenAttention)->Apply(AttentionSizes);
BENCHMARK(BM_TanhGelu)->Apply(GeluSizes);
BENCHMARK(BM_AtenGelu)->Apply(GeluSizes);
BENCHMARK(BM_Linear)->Apply(LinearSizes);
BENCHMARK(BM_AtenLinear)->Apply(LinearSizes);

}  // namespace
}  // namespace rankwise
