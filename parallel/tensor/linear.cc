#include "parallel/tensor/linear.h"

#include <optional>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "c10/util/Exception.h"
#include "parallel/autograd/autocast.h"
#include "parallel/autograd/once_differentiable.h"
#include "parallel/autograd/saved_value.h"
#include "parallel/comm/exchange.h"
#include "parallel/tensor/parts.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Reshapes [..., features] to [rows, features].
torch::Tensor Rows(const torch::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// Returns the product of x [..., inputs] and a matrix [inputs, outputs].
torch::Tensor Product(const torch::Tensor& x, const torch::Tensor& matrix) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = matrix.size(1);
  return at::mm(Rows(x), matrix).view(shape);
}

torch::Tensor WeightGradient(const torch::Tensor& dy, const torch::Tensor& x) {
  return at::mm(Rows(dy).t(), Rows(x));
}

// Starts all-gathers of pieces of x [B, part, features] along the tokens; each
// returns [ranks, B, piece, features].
std::vector<Exchange> StartGathers(const torch::Tensor& x,
                                   const TensorParallel& tp) {
  std::vector<Exchange> pieces;
  for (const torch::Tensor& piece : x.chunk(tp.overlap_pieces, 1))
    pieces.push_back(StartAllGather(piece, tp.group, tp.exposed));
  return pieces;
}

std::vector<torch::Tensor> FinishAll(std::vector<Exchange> pieces) {
  std::vector<torch::Tensor> results;
  for (Exchange& piece : pieces) results.push_back(piece.Finish());
  return results;
}

// The gradients of (x, weight, bias) that backward has to compute.
struct Needs {
  Needs(const AutogradContext& ctx, const variable_list& saved)
      : x(ctx.needs_input_grad(0)),
        weight(ctx.needs_input_grad(1)),
        bias(saved[2].defined() && ctx.needs_input_grad(2)) {}
  const bool x, weight, bias;
};

class ColumnFunction : public OnceDifferentiable<ColumnFunction> {
 public:
  static constexpr char kName[] = "ColumnParallelLinear";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias,
                               int64_t tokens, const TensorParallel& tp) {
    ctx->save_for_backward({x, weight, *bias});
    SaveValue(*ctx, tp);
    if (!tp.sequence_parallel) return at::linear(x, weight, bias);
    std::vector<torch::Tensor> products;
    for (Exchange& piece : StartGathers(x, tp))
      products.push_back(at::linear(piece.Finish(), weight, bias));
    return tensor::Unstack(std::move(products), /*dim=*/1, tokens);
  }

  // Under sequence parallelism all tokens are in the order of stacked parts;
  // padding has a zero gradient and adds nothing to the weight gradient.
  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const TensorParallel& tp = SavedValue<TensorParallel>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    const Needs needs(*ctx, saved);
    std::optional<Exchange> gather, sum;
    if (tp.sequence_parallel && needs.weight)
      gather.emplace(StartAllGather(x, tp.group, tp.exposed));
    const torch::Tensor dy = tp.sequence_parallel
                                 ? tensor::Stack(gradients[0], /*dim=*/1, tp)
                                 : gradients[0];
    if (needs.x) {
      const torch::Tensor dx = Product(dy, weight);
      sum.emplace(tp.sequence_parallel
                      ? StartReduceScatter(dx, tp.group, tp.exposed)
                      : StartAllReduce(dx, tp.group, tp.exposed));
    }
    torch::Tensor dweight, dbias;
    if (needs.bias) dbias = Rows(dy).sum(0);
    if (needs.weight)
      dweight = WeightGradient(dy, gather.has_value() ? gather->Finish() : x);
    return {sum.has_value() ? sum->Finish() : torch::Tensor(), dweight, dbias,
            torch::Tensor(), torch::Tensor()};
  }
};

class RowFunction : public OnceDifferentiable<RowFunction> {
 public:
  static constexpr char kName[] = "RowParallelLinear";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias,
                               const TensorParallel& tp) {
    ctx->save_for_backward({x, weight, *bias});
    SaveValue(*ctx, tp);
    torch::Tensor y =
        tp.sequence_parallel ? PartOfSum(x, weight, tp) : Sum(x, weight, tp);
    if (bias->defined()) y.add_(*bias);
    return y;
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const TensorParallel& tp = SavedValue<TensorParallel>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    const Needs needs(*ctx, saved);
    std::vector<Exchange> gathers;
    if (tp.sequence_parallel) gathers = StartGathers(dy, tp);
    torch::Tensor dx, dweight, dbias;
    if (needs.bias) dbias = Rows(dy).sum(0);
    if (!tp.sequence_parallel) {
      if (needs.x) dx = Product(dy, weight);
      if (needs.weight) dweight = WeightGradient(dy, x);
      return {dx, dweight, dbias, torch::Tensor()};
    }
    std::vector<torch::Tensor> dys, dxs;
    for (Exchange& gather : gathers) {
      dys.push_back(gather.Finish());
      if (needs.x) dxs.push_back(Product(dys.back(), weight));
    }
    if (needs.x) dx = tensor::Unstack(std::move(dxs), /*dim=*/1, x.size(1));
    if (needs.weight) {
      dweight = WeightGradient(tensor::Join(std::move(dys), /*dim=*/2),
                               tensor::Stack(x, /*dim=*/1, tp));
    }
    return {dx, dweight, dbias, torch::Tensor()};
  }

 private:
  // Returns the sum of all rows over the ranks. Each piece is reduced while the
  // next ones are multiplied.
  static torch::Tensor Sum(const torch::Tensor& x, const torch::Tensor& weight,
                           const TensorParallel& tp) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    const torch::Tensor y = at::empty(shape, x.options());
    const auto inputs = Rows(x).chunk(tp.overlap_pieces);
    auto outputs = Rows(y).chunk(tp.overlap_pieces);
    std::vector<Exchange> sums;
    for (size_t i = 0; i < inputs.size(); ++i) {
      at::mm_out(outputs[i], inputs[i], weight.t());
      sums.push_back(StartAllReduce(outputs[i], tp.group, tp.exposed));
    }
    FinishAll(std::move(sums));
    return y;
  }

  // As Sum, but returns only this rank's part of the tokens.
  static torch::Tensor PartOfSum(const torch::Tensor& x,
                                 const torch::Tensor& weight,
                                 const TensorParallel& tp) {
    const torch::Tensor stacked = tensor::Stack(x, /*dim=*/1, tp);
    std::vector<Exchange> sums;
    for (const torch::Tensor& piece : stacked.chunk(tp.overlap_pieces, 2)) {
      sums.push_back(
          StartReduceScatter(Product(piece, weight.t()), tp.group, tp.exposed));
    }
    return tensor::Join(FinishAll(std::move(sums)), /*dim=*/1);
  }
};

}  // namespace

torch::Tensor ColumnParallelLinear(const torch::Tensor& x,
                                   const torch::Tensor& weight,
                                   const torch::Tensor& bias, int64_t tokens,
                                   const TensorParallel& tp) {
  if (tp.size() == 1) return at::linear(x, weight, bias);
  TORCH_CHECK(!tp.sequence_parallel ||
                  (x.dim() == 3 && x.size(1) == PartSize(tokens, tp)),
              "sequence parallelism divides ", tokens,
              " tokens into parts [B, ", PartSize(tokens, tp),
              ", features]; got ", x.sizes());
  // The cast stays outside the autograd functions, so that autograd
  // differentiates it.
  return ColumnFunction::apply(CastByAutocast(x), CastByAutocast(weight),
                               std::optional(CastByAutocast(bias)), tokens, tp);
}

torch::Tensor RowParallelLinear(const torch::Tensor& x,
                                const torch::Tensor& weight,
                                const torch::Tensor& bias,
                                const TensorParallel& tp) {
  if (tp.size() == 1) return at::linear(x, weight, bias);
  return RowFunction::apply(CastByAutocast(x), CastByAutocast(weight),
                            std::optional(CastByAutocast(bias)), tp);
}

}  // namespace rankwise
