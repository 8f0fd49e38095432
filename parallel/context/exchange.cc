#include "parallel/context/exchange.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "c10/util/accumulate.h"
#include "parallel/autograd/once_differentiable.h"
#include "parallel/autograd/saved_value.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

torch::Tensor Exchanged(const torch::Tensor& x, std::vector<int64_t> sends,
                        std::vector<int64_t> receives,
                        const ContextParallel& cp) {
  torch::Tensor input = x.contiguous();
  torch::Tensor output =
      at::empty({c10::sum_integers(receives)}, input.options());
  WorkPtr work =
      cp.group.process_group()->alltoall_base(output, input, receives, sends);
  return Exchange(std::move(work), std::move(input), std::move(output),
                  cp.exposed)
      .Finish();
}

class AllToAllFunction : public OnceDifferentiable<AllToAllFunction> {
 public:
  static constexpr char kName[] = "AllToAll";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const std::vector<int64_t>& sends,
                               const std::vector<int64_t>& receives,
                               const ContextParallel& cp) {
    ctx->saved_data["sends"] = sends;
    ctx->saved_data["receives"] = receives;
    SaveValue(*ctx, cp);
    return Exchanged(x, sends, receives, cp);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    return {Exchanged(gradients[0], ctx->saved_data["receives"].toIntVector(),
                      ctx->saved_data["sends"].toIntVector(),
                      SavedValue<ContextParallel>(*ctx)),
            {},
            {},
            {}};
  }
};

torch::Tensor Summed(const torch::Tensor& x, const ContextParallel& cp) {
  return StartAllReduce(x.clone(at::MemoryFormat::Contiguous), cp.group,
                        cp.exposed)
      .Finish();
}

class SumFunction : public OnceDifferentiable<SumFunction> {
 public:
  static constexpr char kName[] = "SumOverContext";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const ContextParallel& cp) {
    SaveValue(*ctx, cp);
    return Summed(x, cp);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    return {Summed(gradients[0], SavedValue<ContextParallel>(*ctx)), {}};
  }
};

}  // namespace

void RingShift::Start(const torch::Tensor& sent,
                      const torch::Tensor& received) {
  const int ranks = cp_.size(), place = cp_.place();
  c10d::ProcessGroup& group = *cp_.group.process_group();
  const c10::DeviceType device = sent.device().type();
  // NCCL would serialise the two operations; coalescing makes them one group.
  const bool is_grouped = group.getBackend(device)->supportsCoalescing();
  std::vector<torch::Tensor> out = {sent}, in = {received};
  if (is_grouped) group.startCoalescing(device);
  WorkPtr send = group.send(out, (place + 1) % ranks, tag_);
  if (!is_grouped)
    in_flight_.emplace_back(std::move(send), sent, received, cp_.exposed);
  WorkPtr receive = group.recv(in, (place + ranks - 1) % ranks, tag_);
  if (is_grouped) receive = group.endCoalescing(device);
  in_flight_.emplace_back(std::move(receive), sent, received, cp_.exposed);
}

torch::Tensor RingShift::Take() {
  torch::Tensor received;
  while (!in_flight_.empty()) {
    Exchange last = std::move(in_flight_.back());
    in_flight_.pop_back();
    received = last.Finish();
  }
  return received;
}

torch::Tensor AllToAll(const torch::Tensor& x,
                       const std::vector<int64_t>& sends,
                       const std::vector<int64_t>& receives,
                       const ContextParallel& cp) {
  return AllToAllFunction::apply(x, sends, receives, cp);
}

torch::Tensor SumOverContext(const torch::Tensor& x,
                             const ContextParallel& cp) {
  return cp.size() == 1 ? x : SumFunction::apply(x, cp);
}

}  // namespace rankwise
