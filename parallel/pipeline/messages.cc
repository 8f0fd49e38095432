#include "parallel/pipeline/messages.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// What one rank issues with one other rank, in order.
struct Issued {
  size_t value;
  size_t position;  // in the rank's list
};

using Channel = std::vector<Issued>;

bool CrossesRanks(const Schedule& schedule, const Values& values,
                  size_t value) {
  return schedule.rank_of_stage[values.MakerOf(value)] !=
         schedule.rank_of_stage[values.UserOf(value)];
}

// A send and receive for each value that another rank needs.
absl::Status CheckPresent(const Schedule& schedule, const ActionTable& table,
                          const Values& values, const Action& computation) {
  const size_t value = values.MadeBy(computation);
  if (value == Values::kNone || !CrossesRanks(schedule, values, value))
    return absl::OkStatus();
  for (const Action& action : {values.SendOf(value), values.ReceiveOf(value)}) {
    if (table.PositionOf(action) == ActionTable::kMissing)
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", schedule.rank_of_stage[action.stage],
                       ": missing action ", ToString(action)));
  }
  return absl::OkStatus();
}

// Adds the communication action at `position` to its rank's channel with its
// peer.
absl::Status AddToChannel(const Schedule& schedule, const Values& values,
                          int rank, size_t position,
                          std::map<std::pair<int, int>, Channel>* channels) {
  const Action& action = schedule.actions[rank][position];
  const size_t value = values.CarriedBy(action);
  if (value == Values::kNone || !CrossesRanks(schedule, values, value))
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(rank, position, action),
                     ": there is no other rank to exchange this with"));
  const int other_stage =
      IsSend(action.kind) ? values.UserOf(value) : values.MakerOf(value);
  const int peer = schedule.rank_of_stage[other_stage];
  (*channels)[{rank, peer}].push_back({value, position});
  return absl::OkStatus();
}

// Both channels hold the same values, since each is sent and received once.
absl::Status CheckSameOrder(const Schedule& schedule, std::pair<int, int> ranks,
                            const Channel& mine, const Channel& theirs) {
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].value == theirs[i].value) continue;
    const auto place = [&](int rank, const Issued& issued) {
      return PlaceOf(rank, issued.position,
                     schedule.actions[rank][issued.position]);
    };
    return absl::InvalidArgumentError(
        absl::StrCat("ranks ", ranks.first, " and ", ranks.second,
                     " disagree about the message number ", i + 1,
                     " between them: ", place(ranks.first, mine[i]),
                     " against ", place(ranks.second, theirs[i]),
                     "; both must issue them in the same order"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMessages(const Schedule& schedule, const ActionTable& table) {
  const Values values(schedule);
  std::map<std::pair<int, int>, Channel> channels;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      const absl::Status status =
          IsCompute(action.kind)
              ? CheckPresent(schedule, table, values, action)
              : AddToChannel(schedule, values, rank, i, &channels);
      if (!status.ok()) return status;
    }
  }
  for (const auto& [ranks, channel] : channels) {
    if (ranks.first > ranks.second) continue;
    const absl::Status same_order = CheckSameOrder(
        schedule, ranks, channel, channels[{ranks.second, ranks.first}]);
    if (!same_order.ok()) return same_order;
  }
  return absl::OkStatus();
}

}  // namespace rankwise
