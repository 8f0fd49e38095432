#include "parallel/comm/exchange.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

Exchange::Exchange(c10::intrusive_ptr<c10d::Work> work, at::Tensor input,
                   at::Tensor output, ExposedComm* exposed)
    : work_(std::move(work)),
      input_(std::move(input)),
      output_(std::move(output)),
      exposed_(exposed) {}

Exchange::Exchange(const at::Tensor& tensor)
    : output_(tensor), written_(tensor.device()) {}

Exchange::~Exchange() {
  if (work_ == nullptr) return;
  try {
    work_->wait();
  } catch (...) {  // an exception is already being handled
  }
}

at::Tensor Exchange::Finish() {
  const c10::intrusive_ptr<c10d::Work> work = std::move(work_);
  const c10::Device device = output_.device();
  if (written_.has_value()) {
    written_->Block(CurrentStream(device));
  } else if (exposed_ != nullptr) {
    exposed_->Wait(*work, device);
  } else {
    work->wait();
  }
  for (const at::Tensor& used : {input_, output_}) {
    if (!device.is_cpu() && used.defined())
      used.record_stream(CurrentStream(device));
  }
  input_.reset();
  return std::move(output_);
}

Exchange StartAllReduce(const at::Tensor& x, const Group& group,
                        ExposedComm* exposed, const c10d::ReduceOp& op) {
  std::vector<at::Tensor> tensors{x};
  return Exchange(group.process_group()->allreduce(tensors, {.reduceOp = op}),
                  {}, x, exposed);
}

Exchange StartAllGather(const at::Tensor& x, const Group& group,
                        ExposedComm* exposed) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), group.size());
  at::Tensor input = x.contiguous();
  at::Tensor output = at::empty(shape, x.options());
  at::Tensor flat_input = input.view({-1}), flat_output = output.view({-1});
  return Exchange(
      group.process_group()->_allgather_base(flat_output, flat_input),
      std::move(input), std::move(output), exposed);
}

Exchange StartReduceScatter(const at::Tensor& x, const Group& group,
                            ExposedComm* exposed) {
  at::Tensor output = at::empty(x.sizes().slice(1), x.options());
  at::Tensor flat_input = x.view({-1}), flat_output = output.view({-1});
  return Exchange(
      group.process_group()->_reduce_scatter_base(flat_output, flat_input), x,
      std::move(output), exposed);
}

}  // namespace rankwise
