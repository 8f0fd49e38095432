#include "comm_bench/nccl/nccl_layer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "comm_bench/nccl/nccl_calls.h"

namespace rankwise::comm_bench {
namespace {

constexpr size_t kIdBytes = 128;

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

absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make) {
  const int first = Members(control, ranks).front();
  std::vector<double> told(1 + kIdBytes, 0);  // whether there is one; its bytes
  absl::StatusOr<std::string> own = std::string();
  if (control.rank() == first) {
    own = make();
    if (own.ok() && own->size() != kIdBytes) {
      own = absl::InternalError("an id of NCCL has 128 bytes");
    }
    if (own.ok()) std::copy(own->begin(), own->end(), told.begin() + 1);
  }
  told[0] = own.ok() ? 1 : 0;
  const auto all = control.Gather(told);
  if (!own.ok()) return own.status();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == 1) continue;
    return absl::UnavailableError(absl::StrCat(
        "rank ", rank, " could not make an id for NCCL and says why"));
  }
  std::string id;
  for (size_t i = 1; i <= kIdBytes; ++i) {
    id += static_cast<char>(all[static_cast<size_t>(first)][i]);
  }
  return id;
}

absl::StatusOr<std::unique_ptr<RawNccl>> ConnectRawNccl(
    Control& control, const std::vector<int>& ranks, c10::Device device) {
  absl::StatusOr<std::string> id = ShareNcclId(control, ranks, RawNccl::NewId);
  if (!id.ok()) return id.status();
  const std::vector<int> members = Members(control, ranks);
  const auto own = std::find(members.begin(), members.end(), control.rank());
  return RawNccl::Connect(*id, static_cast<int>(own - members.begin()),
                          static_cast<int>(members.size()), device);
}

std::unique_ptr<Layer> MakeNcclLayer(std::unique_ptr<RawNccl> nccl, int rank) {
  return std::make_unique<NcclLayer>(std::move(nccl), rank);
}

}  // namespace rankwise::comm_bench
