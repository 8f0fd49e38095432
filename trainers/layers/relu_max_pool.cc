#include "trainers/layers/relu_max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/instruction_set.h"
#include "trainers/layers/pool_rows.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Channels-last: inputs [examples, rows, columns, channels]; outputs have half
// as many rows and columns.
struct Shape {
  int64_t examples, channels, rows, columns;
};

// Calls row(input's offset, output's offset) for each row of outputs.
template <typename Row>
void ForEachRow(const Shape& shape, const Row& row) {
  const int64_t input_row = shape.columns * shape.channels;
  const int64_t rows = shape.examples * shape.rows / 2;
  constexpr int64_t kValuesPerThread = 32768;
  at::parallel_for(0, rows,
                   std::max<int64_t>(kValuesPerThread / (2 * input_row), 1),
                   [&](int64_t begin, int64_t end) {
                     RunLoop([&](auto) __attribute__((always_inline)) {
                       for (int64_t i = begin; i < end; ++i)
                         row(i * 2 * input_row, i * input_row / 2);
                     });
                   });
}

template <typename Float>
void Pool(const torch::Tensor& x, const Shape& shape, torch::Tensor& y,
          torch::Tensor& choices) {
  using Bits = typename Float::Bits;
  const auto* const in = static_cast<const Bits*>(x.const_data_ptr());
  auto* const out = static_cast<Bits*>(y.mutable_data_ptr());
  auto* const choice = static_cast<Choice*>(choices.mutable_data_ptr());
  ForEachRow(
      shape, [=](int64_t input, int64_t output) __attribute__((always_inline)) {
        PoolRows<Float>(in + input, shape.columns, shape.channels, out + output,
                        choice + output);
      });
}

template <typename Bits>
void Unpool(const torch::Tensor& gradient, const torch::Tensor& choices,
            const Shape& shape, torch::Tensor& x_gradient) {
  const auto* const from = static_cast<const Bits*>(gradient.const_data_ptr());
  const auto* const choice =
      static_cast<const Choice*>(choices.const_data_ptr());
  auto* const to = static_cast<Bits*>(x_gradient.mutable_data_ptr());
  ForEachRow(
      shape, [=](int64_t input, int64_t output) __attribute__((always_inline)) {
        UnpoolRows(from + output, choice + output, shape.columns,
                   shape.channels, to + input);
      });
}

// Returns nullptr for unsupported types.
auto* PoolOf(c10::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return &Pool<Fp32>;
    case at::kBFloat16:
      return &Pool<Bf16>;
    case at::kHalf:
      return &Pool<Fp16>;
    default:
      return static_cast<decltype(&Pool<Fp32>)>(nullptr);
  }
}

Shape ShapeOf(const torch::Tensor& x) {
  return {x.size(0), x.size(1), x.size(2), x.size(3)};
}

torch::Tensor Empty(std::vector<int64_t> sizes, at::TensorOptions options) {
  return at::empty(sizes,
                   options.memory_format(at::MemoryFormat::ChannelsLast));
}

class ReluMaxPoolFunction : public OnceDifferentiable<ReluMaxPoolFunction> {
 public:
  static constexpr char kName[] = "ReluMaxPool";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x) {
    const torch::Tensor in = x.contiguous(at::MemoryFormat::ChannelsLast);
    const Shape shape = ShapeOf(x);
    const std::vector<int64_t> sizes = {shape.examples, shape.channels,
                                        shape.rows / 2, shape.columns / 2};
    torch::Tensor y = Empty(sizes, x.options());
    torch::Tensor choices = Empty(sizes, x.options().dtype(at::kByte));
    PoolOf(x.scalar_type())(in, shape, y, choices);
    ctx->save_for_backward({choices});
    return y;
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const torch::Tensor choices = ctx->get_saved_variables()[0];
    const torch::Tensor gradient =
        gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const Shape shape = {choices.size(0), choices.size(1), 2 * choices.size(2),
                         2 * choices.size(3)};
    torch::Tensor x_gradient =
        Empty({shape.examples, shape.channels, shape.rows, shape.columns},
              gradient.options());
    const auto unpool = gradient.scalar_type() == at::kFloat ? &Unpool<int32_t>
                                                             : &Unpool<int16_t>;
    unpool(gradient, choices, shape, x_gradient);
    return {x_gradient};
  }
};

bool RunsHere(const torch::Tensor& x) {
  return x.is_cpu() && x.dim() == 4 && x.size(2) % 2 == 0 &&
         x.size(3) % 2 == 0 && PoolOf(x.scalar_type()) != nullptr;
}

}  // namespace

torch::Tensor ReluMaxPool(const torch::Tensor& x) {
  return RunsHere(x) ? ReluMaxPoolFunction::apply(x)
                     : at::max_pool2d(x.relu_(), 2);
}

}  // namespace rankwise
