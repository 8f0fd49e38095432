#include "trainers/layers/conv_relu_max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>

#include "parallel/autograd/autocast.h"
#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/conv_pairs.h"
#include "trainers/layers/conv_rows.h"
#include "trainers/layers/instruction_set.h"
#include "trainers/layers/pool_rows.h"
#include "trainers/layers/relu_max_pool.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls images(lanes, first, end, scratch, thread) for each thread's part,
// which depends only on the number of threads.
template <typename Images>
void ForEachThread(const ConvShape& shape, int64_t threads,
                   const Images& images) {
  const torch::Tensor scratch =
      at::zeros({threads, Scratch::Floats(shape)}, at::kFloat);
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      const Scratch own(scratch[thread].data_ptr<float>(), shape);
      RunLoop([&](auto lanes) __attribute__((always_inline)) {
        images(lanes, thread * shape.examples / threads,
               (thread + 1) * shape.examples / threads, own, thread);
      });
    }
  });
}

int64_t ThreadsFor(const ConvShape& shape) {
  return std::clamp<int64_t>(at::get_num_threads(), 1,
                             std::max<int64_t>(shape.examples, 1));
}

// Converts weights [out, in, 3, 3] of any type to [3, 3, in, out], and back.
torch::Tensor OutputsLast(const torch::Tensor& weight) {
  return weight.permute({2, 3, 1, 0}).to(at::kFloat).contiguous();
}

torch::Tensor OutputsFirst(const torch::Tensor& weight) {
  return weight.permute({3, 2, 0, 1})
      .contiguous(at::MemoryFormat::ChannelsLast);
}

template <typename Float>
void Forward(const ForwardPass<Float>& pass, const ConvShape& shape) {
  ForEachThread(
      shape, ThreadsFor(shape),
      [&](auto lanes, int64_t begin, int64_t end, const Scratch& scratch,
          int64_t) __attribute__((always_inline)) {
        for (int64_t i = begin; i < end; ++i)
          ForwardImage(lanes, pass, shape, i, scratch);
      });
}

template <typename Float>
void Backward(const BackwardPass<Float>& pass, const ConvShape& shape,
              int64_t threads) {
  ForEachThread(
      shape, threads,
      [&](auto lanes, int64_t begin, int64_t end, const Scratch& scratch,
          int64_t thread) __attribute__((always_inline)) {
        for (int64_t i = begin; i < end; ++i)
          BackwardImage(lanes, pass, shape, i, scratch, thread);
      });
}

ConvShape ShapeOf(const torch::Tensor& x) {
  return {x.size(0), x.size(2), x.size(3)};
}

// Calls run(Float()) with the loops' type.
template <typename Run>
void RunFor(c10::ScalarType type, bool bf16_pairs, const Run& run) {
  if (type == at::kFloat) return run(Fp32());
  bf16_pairs ? run(Bf16Pairs()) : run(Bf16());
}

class ConvReluMaxPoolFunction
    : public OnceDifferentiable<ConvReluMaxPoolFunction> {
 public:
  static constexpr char kName[] = "ConvReluMaxPool";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const torch::Tensor& bias, bool bf16_pairs) {
    const c10::ScalarType type = AutocastType(x);
    const ConvShape shape = ShapeOf(x);
    const torch::Tensor in =
        x.to(type).contiguous(at::MemoryFormat::ChannelsLast);
    const auto empty = [&](c10::ScalarType of) {
      return at::empty(
          {shape.examples, kChannels, shape.rows / 2, shape.columns / 2},
          x.options().dtype(of), at::MemoryFormat::ChannelsLast);
    };
    torch::Tensor y = empty(type), choices = empty(at::kByte);
    const torch::Tensor weights = OutputsLast(weight.to(type));
    const torch::Tensor biases = bias.to(type).to(at::kFloat);
    RunFor(type, bf16_pairs, [&](auto number) {
      using Float = decltype(number);
      using Bits = typename Float::Bits;
      Forward<Float>({.x = static_cast<const Bits*>(in.const_data_ptr()),
                      .weights = weights.const_data_ptr<float>(),
                      .bias = biases.const_data_ptr<float>(),
                      .y = static_cast<Bits*>(y.mutable_data_ptr()),
                      .choices = choices.mutable_data_ptr<Choice>()},
                     shape);
    });
    ctx->save_for_backward({in, choices});
    ctx->saved_data["bf16_pairs"] = bf16_pairs;
    ctx->saved_data["type"] = weight.scalar_type();
    return y;
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &choices = saved[1];
    const ConvShape shape = ShapeOf(x);
    const int64_t threads = ThreadsFor(shape);
    const torch::Tensor dy =
        gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const torch::Tensor dweights =
        at::zeros({threads, kKernel, kKernel, kIn, kChannels}, at::kFloat);
    const torch::Tensor dbias = at::zeros({threads, kChannels}, at::kFloat);
    const bool bf16_pairs = ctx->saved_data["bf16_pairs"].toBool();
    RunFor(x.scalar_type(), bf16_pairs, [&](auto number) {
      using Float = decltype(number);
      using Bits = typename Float::Bits;
      Backward<Float>({.dy = static_cast<const Bits*>(dy.const_data_ptr()),
                       .x = static_cast<const Bits*>(x.const_data_ptr()),
                       .choices = choices.const_data_ptr<Choice>(),
                       .dweights = dweights.data_ptr<float>(),
                       .dbias = dbias.data_ptr<float>()},
                      shape, threads);
    });
    const c10::ScalarType type = ctx->saved_data["type"].toScalarType();
    return {torch::Tensor(), OutputsFirst(dweights.sum(0)).to(type),
            dbias.sum(0).to(type), torch::Tensor()};
  }
};

bool RunsHere(const torch::Tensor& x, const torch::Tensor& weight) {
  if (!x.is_cpu() || x.dim() != 4 || x.requires_grad() ||
      x.scalar_type() != at::kFloat)
    return false;
  const c10::ScalarType type = AutocastType(x);
  return (type == at::kFloat || type == at::kBFloat16) &&
         weight.sizes().slice(1) == at::IntArrayRef{kIn, kKernel, kKernel} &&
         weight.size(0) == kChannels && x.size(1) == kIn &&
         x.size(2) % 2 == 0 && x.size(3) % kColumns == 0;
}

}  // namespace

torch::Tensor ConvReluMaxPool(const torch::Tensor& x,
                              const torch::Tensor& weight,
                              const torch::Tensor& bias, bool bf16_pairs) {
  if (RunsHere(x, weight))
    return ConvReluMaxPoolFunction::apply(x, weight, bias, bf16_pairs);
  return ReluMaxPool(at::conv2d(x, weight, bias, /*stride=*/1, /*padding=*/1));
}

}  // namespace rankwise
