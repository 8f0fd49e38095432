#include "comm_bench/nccl/layer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm_bench/timing/agreement.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

class C10dLayer : public Layer {
 public:
  explicit C10dLayer(c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)) {}

  std::string name() const override { return "c10d"; }
  int rank() const override { return group_->getRank(); }

  Start Prepare(const Collective& collective, const Call& call) override {
    return [this, &collective, &call](Buffers& buffers, Works& works) {
      collective.start(*group_, call, buffers, works);
    };
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) override {
    return RegisteredWithC10d(*group_, device);
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

std::vector<int> Members(const Control& control,
                         const std::vector<int>& ranks) {
  if (!ranks.empty()) return ranks;
  std::vector<int> all(static_cast<size_t>(control.world_size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class NcclLayer : public Layer {
 public:
  NcclLayer(std::unique_ptr<RawNccl> nccl, int rank)
      : nccl_(std::move(nccl)), rank_(rank) {}

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }

  // Planned once: planning is not to be measured.
  Start Prepare(const Collective& collective, const Call& call) override {
    return [this, &collective, groups = NcclCallsOf(collective, call),
            op = call.op](Buffers& buffers, Works&) {
      for (const NcclGroup& group : groups) {
        nccl_->Run(collective.name, group, buffers.input, buffers.output, op);
      }
    };
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device) override {
    return nccl_->NewRegistered();
  }

 private:
  const std::unique_ptr<RawNccl> nccl_;
  const int rank_;
};

}  // namespace

std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group) {
  return std::make_unique<C10dLayer>(std::move(group));
}

absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make) {
  const int first = Members(control, ranks).front();
  absl::StatusOr<std::string> own = std::string();
  if (control.rank() == first) own = make();
  RETURN_IF_ERROR(AllOk(control, own.status(), "make an id for NCCL"));
  return GatherTexts(control, *own)[first];
}

absl::StatusOr<std::unique_ptr<RawNccl>> ConnectRawNccl(
    Control& control, const std::vector<int>& ranks, c10::Device device) {
  ASSIGN_OR_RETURN(std::string id, ShareNcclId(control, ranks, RawNccl::NewId));
  const std::vector<int> members = Members(control, ranks);
  const auto own = std::find(members.begin(), members.end(), control.rank());
  return RawNccl::Connect(id, static_cast<int>(own - members.begin()),
                          static_cast<int>(members.size()), device);
}

std::unique_ptr<Layer> MakeNcclLayer(std::unique_ptr<RawNccl> nccl, int rank) {
  return std::make_unique<NcclLayer>(std::move(nccl), rank);
}

}  // namespace rankwise::comm_bench
