#include "comm_bench/nccl/layer.h"

#include <utility>

#include "comm_bench/nccl/c10d_registered.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

class C10dLayer : public Layer {
 public:
  explicit C10dLayer(c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)) {}

  std::string name() const override { return "c10d"; }
  int rank() const override { return group_->getRank(); }

  void Start(const Collective& collective, const Call& call, Buffers& buffers,
             Works& works) override {
    collective.start(*group_, call, buffers, works);
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) override {
    return RegisteredWithC10d(*group_, device);
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group) {
  return std::make_unique<C10dLayer>(std::move(group));
}

}  // namespace rankwise::comm_bench
