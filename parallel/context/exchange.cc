#include "parallel/context/exchange.h"

#include <utility>

#include "ATen/core/ivalue.h"
#include "ATen/ops/empty.h"
#include "c10/util/accumulate.h"
#include "parallel/autograd/once_differentiable.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct ContextHolder : torch::CustomClassHolder {
  explicit ContextHolder(const ContextParallel& context) : cp(context) {}
  const ContextParallel cp;
};

void WaitFor(c10d::Work& work, c10::Device device, const ContextParallel& cp) {
  if (cp.exposed == nullptr) {
    work.wait();
  } else {
    cp.exposed->Wait(work, device);
  }
}

torch::Tensor Exchanged(const torch::Tensor& x, std::vector<int64_t> sends,
                        std::vector<int64_t> receives,
                        const ContextParallel& cp) {
  torch::Tensor input = x.contiguous();
  torch::Tensor output =
      at::empty({c10::sum_integers(receives)}, input.options());
  const WorkPtr work =
      cp.group.process_group()->alltoall_base(output, input, receives, sends);
  WaitFor(*work, x.device(), cp);
  return output;
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
    SaveContext(*ctx, cp);
    return Exchanged(x, sends, receives, cp);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    return {
        Exchanged(gradients[0], ctx->saved_data["receives"].toIntVector(),
                  ctx->saved_data["sends"].toIntVector(), SavedContext(*ctx)),
        {},
        {},
        {}};
  }
};

torch::Tensor Summed(const torch::Tensor& x, const ContextParallel& cp) {
  std::vector<torch::Tensor> sum = {x.clone(at::MemoryFormat::Contiguous)};
  WaitFor(*cp.group.process_group()->allreduce(sum), x.device(), cp);
  return sum[0];
}

class SumFunction : public OnceDifferentiable<SumFunction> {
 public:
  static constexpr char kName[] = "SumOverContext";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const ContextParallel& cp) {
    SaveContext(*ctx, cp);
    return Summed(x, cp);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    return {Summed(gradients[0], SavedContext(*ctx)), {}};
  }
};

}  // namespace

void SaveContext(AutogradContext& ctx, const ContextParallel& cp) {
  ctx.saved_data["context"] =
      c10::IValue::make_capsule(c10::make_intrusive<ContextHolder>(cp));
}

ContextParallel SavedContext(AutogradContext& ctx) {
  return c10::static_intrusive_pointer_cast<ContextHolder>(
             ctx.saved_data["context"].toCapsule())
      ->cp;
}

RingShift::~RingShift() {
  while (!works_.empty()) {
    try {
      Take();
    } catch (...) {
      // The exception that ends this step says more.
    }
  }
}

void RingShift::Start(const torch::Tensor& sent,
                      const torch::Tensor& received) {
  sent_ = sent;
  received_ = received;
  const int ranks = cp_.size(), place = cp_.place();
  c10d::ProcessGroup& group = *cp_.group.process_group();
  const c10::DeviceType device = sent.device().type();
  // NCCL would run one after the other, and gets both as one group.
  const bool is_grouped = group.getBackend(device)->supportsCoalescing();
  std::vector<torch::Tensor> out = {sent}, in = {received};
  if (is_grouped) group.startCoalescing(device);
  WorkPtr send = group.send(out, (place + 1) % ranks, tag_);
  if (!is_grouped) works_.push_back(std::move(send));
  WorkPtr receive = group.recv(in, (place + ranks - 1) % ranks, tag_);
  works_.push_back(is_grouped ? group.endCoalescing(device)
                              : std::move(receive));
}

torch::Tensor RingShift::Take() {
  while (!works_.empty()) {
    const WorkPtr work = std::move(works_.back());
    works_.pop_back();  // also if it has failed
    WaitFor(*work, received_.device(), cp_);
  }
  sent_.reset();
  return std::exchange(received_, torch::Tensor());
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
