// Times backward and its two halves for a chain of Linear and ReLU.
//   bazel run //parallel/pipeline/engine:split_backward_benchmark
// Arguments: layers, width (the batch is 64 rows). One thread.
#include <cstdint>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "benchmark/benchmark.h"
#include "parallel/pipeline/engine/stage_runner.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

class Chain {
 public:
  explicit Chain(const benchmark::State& state) {
    at::set_num_threads(1);
    const int64_t width = state.range(1);
    for (int64_t i = 0; i < state.range(0); ++i) {
      weights_.push_back((at::randn({width, width}) / 32).requires_grad_());
      biases_.push_back(at::zeros({width}).requires_grad_());
    }
    input = at::randn({64, width}).requires_grad_();
    grad_output = at::randn({64, width});
  }

  at::Tensor Forward() const {
    at::Tensor x = input;
    for (size_t i = 0; i < weights_.size(); ++i) {
      x = at::relu(at::linear(x, weights_[i], biases_[i]));
    }
    return x;
  }

  at::Tensor input, grad_output;

 private:
  std::vector<at::Tensor> weights_, biases_;
};

void BM_B(benchmark::State& state) {
  const Chain chain(state);
  for (auto _ : state) {
    state.PauseTiming();
    const at::Tensor output = chain.Forward();
    state.ResumeTiming();
    torch::autograd::backward({output}, {chain.grad_output});
  }
}

// Times the halves of a backward, or one of them.
void BM_Split(benchmark::State& state, bool times_i, bool times_w) {
  const Chain chain(state);
  for (auto _ : state) {
    state.PauseTiming();
    SplitBackward backward(chain.Forward(), chain.input);
    if (times_i) state.ResumeTiming();
    benchmark::DoNotOptimize(backward.InputGrad(chain.grad_output));
    if (!times_i) state.ResumeTiming();
    if (times_w) backward.WeightGrad();
  }
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"layers", "width"})
      ->ArgsProduct({{4, 16}, {16, 512}})
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_B)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Split, I, true, false)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Split, W, false, true)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Split, IThenW, true, true)->Apply(Sizes);

}  // namespace
}  // namespace rankwise
