#include "parallel/sharded/sharding.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

Group JustThisRank(const Group& line) {
  return Group(line.name(), {line.ranks()[static_cast<size_t>(line.place())]},
               0, nullptr, line.communicator());
}

}  // namespace

absl::StatusOr<ShardingGroups> DivideLine(const Group& line, int shard_ranks) {
  const int ranks = line.size();
  if (shard_ranks < 1 || ranks % shard_ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("state cannot be divided among groups of ",
                     Counted(shard_ranks, "rank"), ": ", Counted(ranks, "rank"),
                     ranks == 1 ? " trains" : " train", " on different data"));
  }
  if (shard_ranks == ranks) return ShardingGroups{line, JustThisRank(line)};
  if (shard_ranks == 1) return ShardingGroups{JustThisRank(line), line};
  std::vector<int> shard, replicate;
  for (int place = 0; place < ranks; ++place) {
    const int rank = line.ranks()[static_cast<size_t>(place)];
    if (place / shard_ranks == line.place() / shard_ranks)
      shard.push_back(rank);
    if (place % shard_ranks == line.place() % shard_ranks)
      replicate.push_back(rank);
  }
  Communicator& communicator = *line.communicator();
  ShardingGroups groups;
  ASSIGN_OR_RETURN(groups.shard, communicator.NewGroup("dp_shard", shard));
  ASSIGN_OR_RETURN(groups.replicate,
                   communicator.NewGroup("dp_replicate", replicate));
  return groups;
}

}  // namespace rankwise
