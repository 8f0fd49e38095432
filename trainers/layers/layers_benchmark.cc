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
#include "trainers/layers/rms_norm.h"
#include "trainers/layers/rotary.h"
#include "trainers/layers/swiglu.h"

namespace rankwise {
namespace {

at::TensorOptions Type(const benchmark::State& state) {
  return at::TensorOptions(state.range(0) == 1 ? at::kBFloat16 : at::kFloat);
}

template <typename Layer>
void Train(benchmark::State& state, at::Tensor x, at::IntArrayRef output,
           const Layer& layer) {
  at::set_num_threads(1);
  x.requires_grad_();
  const at::Tensor gradient = at::randn(output, Type(state));
  for (auto _ : state) {
    x.mutable_grad().reset();
    torch::autograd::backward({layer(x)}, {gradient});
  }
}

template <typename Layer>
void TrainAttention(benchmark::State& state, const Layer& layer) {
  const int64_t heads = state.range(3), kv_heads = state.range(4),
                features = state.range(5);
  Train(state,
        at::randn(
            {state.range(1), state.range(2), (heads + 2 * kv_heads) * features},
            Type(state)),
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
  Train(state, at::randn({state.range(1), state.range(2)}, Type(state)),
        {state.range(1), state.range(2)}, TanhGelu);
}

void BM_AtenGelu(benchmark::State& state) {
  Train(state, at::randn({state.range(1), state.range(2)}, Type(state)),
        {state.range(1), state.range(2)},
        [](const at::Tensor& x) { return at::gelu(x, "tanh"); });
}

// A layer of Llama: 8 x 256 tokens of width 384, 6 heads of 64 features, 2
// key-value heads, MLPs of width 1024.
constexpr int64_t kWidth = 384, kMlpWidth = 1024, kHeads = 6, kKvHeads = 2,
                  kQkvWidth = (kHeads + 2 * kKvHeads) * 64;

template <typename Layer>
void TrainTokens(benchmark::State& state, int64_t in, int64_t out,
                 const Layer& layer) {
  Train(state, at::randn({8, 256, in}, Type(state)), {8, 256, out}, layer);
}

// In bf16 under autocast, with fp32 inputs, as the norms of a transformer.
template <typename Layer>
void TrainRmsNorm(benchmark::State& state, const Layer& norm) {
  const at::Tensor weight = at::ones({kWidth}).requires_grad_();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, state.range(0) == 1);
  Train(state, at::randn({8, 256, kWidth}), {8, 256, kWidth},
        [&](const at::Tensor& x) { return norm(x, weight); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

void BM_RmsNorm(benchmark::State& state) {
  TrainRmsNorm(state, [](const at::Tensor& x, const at::Tensor& weight) {
    return RmsNorm(x, weight, 1e-5);
  });
}

void BM_AtenRmsNorm(benchmark::State& state) {
  TrainRmsNorm(state, [&](const at::Tensor& x, const at::Tensor& weight) {
    return at::rms_norm(x, {kWidth}, weight, 1e-5).to(Type(state).dtype());
  });
}

void BM_SwiGlu(benchmark::State& state) {
  TrainTokens(state, 2 * kMlpWidth, kMlpWidth, SwiGlu);
}

void BM_AtenSwiGlu(benchmark::State& state) {
  TrainTokens(state, 2 * kMlpWidth, kMlpWidth, [](const at::Tensor& x) {
    const std::vector<at::Tensor> halves = x.chunk(2, -1);
    return at::silu(halves[0]) * halves[1];
  });
}

RotaryAngles Angles() {
  return RotaryTable(at::arange(256), /*features=*/64, /*theta=*/5e5);
}

void BM_Rotary(benchmark::State& state) {
  const RotaryAngles angles = Angles();
  TrainTokens(state, kQkvWidth, kQkvWidth, [&](const at::Tensor& x) {
    return Rotary(x, kHeads, kKvHeads, angles.cos, angles.sin);
  });
}

// As in transformers, plus a copy of the values, which Rotary makes, too.
void BM_AtenRotary(benchmark::State& state) {
  const RotaryAngles angles = Angles();
  const auto repeated = [&](const at::Tensor& x) {
    return at::cat({x, x}, -1).unsqueeze(1).to(Type(state).dtype());
  };
  const at::Tensor cos = repeated(angles.cos), sin = repeated(angles.sin);
  const auto rotate = [&](const at::Tensor& x) {
    const std::vector<at::Tensor> halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  };
  TrainTokens(state, kQkvWidth, kQkvWidth, [&](const at::Tensor& x) {
    const std::vector<at::Tensor> parts =
        x.unflatten(-1, {-1, 64})
            .split_with_sizes({kHeads, kKvHeads, kKvHeads}, -2);
    return at::cat({rotate(parts[0]), rotate(parts[1]), parts[2]}, -2)
        .flatten(-2);
  });
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

void Types(benchmark::internal::Benchmark* measured) {
  measured->Unit(benchmark::kMillisecond)->Arg(0)->Arg(1);
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
BENCHMARK(BM_RmsNorm)->Apply(Types);
BENCHMARK(BM_AtenRmsNorm)->Apply(Types);
BENCHMARK(BM_SwiGlu)->Apply(Types);
BENCHMARK(BM_AtenSwiGlu)->Apply(Types);
BENCHMARK(BM_Rotary)->Apply(Types);
BENCHMARK(BM_AtenRotary)->Apply(Types);
BENCHMARK(BM_Linear)->Apply(LinearSizes);
BENCHMARK(BM_AtenLinear)->Apply(LinearSizes);

}  // namespace
}  // namespace rankwise
