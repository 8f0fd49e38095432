#include "comm_bench/collectives/collectives.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm_bench/collectives/entries.h"

namespace rankwise::comm_bench {

const std::vector<const Collective*>& AllCollectives() {
  static const auto* const all = new std::vector<const Collective*>{
      &kAllReduce, &kAllGather,     &kReduceScatter, &kBroadcast, &kReduce,
      &kAllToAll,  &kAllToAllV,     &kGather,        &kScatter,   &kSendRecv,
      &kPingPong,  &kBidirectional, &kBarrier,
  };
  return *all;
}

absl::StatusOr<const Collective*> FindCollective(const std::string& name) {
  for (const Collective* collective : AllCollectives()) {
    if (name == collective->name) return collective;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown collective '", name, "'; there are ",
      absl::StrJoin(AllCollectives(), ", ",
                    [](std::string* out, const Collective* collective) {
                      out->append(collective->name);
                    })));
}

}  // namespace rankwise::comm_bench
