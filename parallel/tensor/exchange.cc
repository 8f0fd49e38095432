#include "parallel/tensor/exchange.h"

#include <utility>

#include "ATen/ops/cat.h"
#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/empty.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::tensor {
namespace {

struct KeptTensorParallel : torch::CustomClassHolder {
  explicit KeptTensorParallel(const TensorParallel& any_tp) : tp(any_tp) {}
  const TensorParallel tp;
};

}  // namespace

Exchange::~Exchange() {
  if (work_ == nullptr) return;
  try {
    work_->wait();
  } catch (...) {  // the exception that brought us here says more
  }
}

torch::Tensor Exchange::Finish() {
  const c10::intrusive_ptr<c10d::Work> work = std::move(work_);
  if (exposed_ != nullptr) {
    exposed_->Wait(*work, output_.device());
  } else {
    work->wait();
  }
  input_.reset();
  return std::move(output_);
}

Exchange StartAllReduce(const torch::Tensor& x, const TensorParallel& tp,
                        const c10d::ReduceOp& op) {
  std::vector<torch::Tensor> tensors{x};
  return Exchange(
      tp.group.process_group()->allreduce(tensors, {.reduceOp = op}), {}, x,
      tp);
}

Exchange StartAllGather(const torch::Tensor& x, const TensorParallel& tp) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), tp.size());
  torch::Tensor input = x.contiguous();
  torch::Tensor output = at::empty(shape, x.options());
  torch::Tensor flat_input = input.view({-1}), flat_output = output.view({-1});
  return Exchange(
      tp.group.process_group()->_allgather_base(flat_output, flat_input),
      std::move(input), std::move(output), tp);
}

Exchange StartReduceScatter(const torch::Tensor& x, const TensorParallel& tp) {
  torch::Tensor output = at::empty(x.sizes().slice(1), x.options());
  torch::Tensor flat_input = x.view({-1}), flat_output = output.view({-1});
  return Exchange(
      tp.group.process_group()->_reduce_scatter_base(flat_output, flat_input),
      x, std::move(output), tp);
}

torch::Tensor Stack(const torch::Tensor& x, int64_t dim,
                    const TensorParallel& tp) {
  const int64_t part = PartSize(x.size(dim), tp);
  const int64_t padding = part * tp.size() - x.size(dim);
  std::vector<int64_t> pad(2 * (x.dim() - dim), 0);  // from the last dimension
  pad.back() = padding;
  const torch::Tensor padded = padding == 0 ? x : at::constant_pad_nd(x, pad);
  return padded.unflatten(dim, {tp.size(), part}).movedim(dim, 0).contiguous();
}

torch::Tensor Unstack(std::vector<torch::Tensor> pieces, int64_t dim,
                      int64_t size) {
  for (torch::Tensor& piece : pieces) piece = piece.movedim(0, dim);
  return Join(std::move(pieces), dim + 1)
      .flatten(dim, dim + 1)
      .narrow(dim, 0, size)
      .contiguous();
}

torch::Tensor Join(std::vector<torch::Tensor> pieces, int64_t dim) {
  return pieces.size() == 1 ? std::move(pieces[0]) : at::cat(pieces, dim);
}

void Keep(torch::autograd::AutogradContext& ctx, const TensorParallel& tp) {
  ctx.saved_data["tp"] =
      c10::IValue::make_capsule(c10::make_intrusive<KeptTensorParallel>(tp));
}

TensorParallel Kept(const torch::autograd::AutogradContext& ctx) {
  return c10::static_intrusive_pointer_cast<KeptTensorParallel>(
             ctx.saved_data.at("tp").toCapsule())
      ->tp;
}

}  // namespace rankwise::tensor
