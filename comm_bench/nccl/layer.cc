#include "comm_bench/nccl/layer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
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

  void Start(const Collective& collective, const Call& call, Buffers& buffers,
             Works&) override {
    Plan(collective, call);
    for (const NcclGroup& group : groups_) {
      const absl::Status status =
          nccl_->Run(group, buffers.input, buffers.output, call.op);
      TORCH_CHECK(status.ok(), collective.name, ": ",
                  std::string(status.message()));
    }
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device) override {
    return nccl_->NewRegistered();
  }

 private:
  // What the calls depend on.
  struct Key {
    const Collective* collective = nullptr;
    const TrafficMatrix* traffic = nullptr;
    int64_t count = 0;
    int root = 0;
    bool in_place = false;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // The same calls come again and again, and planning them is not to be
  // measured.
  void Plan(const Collective& collective, const Call& call) {
    const Key key = {&collective, call.traffic, call.count, call.root,
                     call.in_place};
    if (planned_ == key) return;
    auto groups = NcclCallsOf(collective, call);
    TORCH_CHECK(groups.ok(), std::string(groups.status().message()));
    groups_ = *std::move(groups);
    planned_ = key;
  }

  const std::unique_ptr<RawNccl> nccl_;
  const int rank_;
  std::optional<Key> planned_;
  std::vector<NcclGroup> groups_;
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
