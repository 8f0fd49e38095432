#include "parallel/pipeline/action_table.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// Positions fit their type.
constexpr size_t kMostActionsPerRank = size_t{1} << 30;

absl::Status CheckRanks(const Schedule& schedule) {
  if (schedule.num_micro_batches < 1 || schedule.rank_of_stage.empty())
    return absl::InvalidArgumentError("the schedule is empty");
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const int rank = schedule.rank_of_stage[stage];
    if (rank < 0 || rank >= schedule.num_ranks())
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", stage, " is on rank ", rank, " of ",
                       schedule.num_ranks(), " ranks"));
  }
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    if (schedule.actions[rank].empty())
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " has no actions"));
    if (schedule.actions[rank].size() > kMostActionsPerRank)
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank, " has more than ", kMostActionsPerRank, " actions"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const Schedule& schedule, int rank,
                        const Action& action) {
  if (action.stage < 0 || action.stage >= schedule.num_stages())
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no such stage among ", schedule.num_stages(), " stages"));
  if (action.micro_batch < 0 ||
      action.micro_batch >= schedule.num_micro_batches)
    return absl::InvalidArgumentError(
        absl::StrCat("there is no such micro-batch among ",
                     schedule.num_micro_batches, " micro-batches"));
  const int home = schedule.rank_of_stage[action.stage];
  if (home != rank)
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", action.stage, " is on rank ", home));
  return absl::OkStatus();
}

}  // namespace

std::string PlaceOf(int rank, size_t position, const Action& action) {
  return absl::StrCat("rank ", rank, ", action ", position + 1, " (",
                      ToString(action), ")");
}

absl::Status ActionTable::Add(const Schedule& schedule, int rank,
                              size_t position) {
  const Action& action = schedule.actions[rank][position];
  const auto refuse = [&](absl::string_view reason) {
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(rank, position, action), ": ", reason));
  };
  const absl::Status in_range = CheckRange(schedule, rank, action);
  if (!in_range.ok()) return refuse(in_range.message());
  std::vector<int32_t>& positions =
      positions_[static_cast<size_t>(action.kind)];
  if (positions.empty())
    positions.resize(schedule.rank_of_stage.size() * micro_batches_, kMissing);
  int32_t& cell = positions[Cell(action.stage, action.micro_batch)];
  if (cell != kMissing)
    return refuse(
        absl::StrCat("doubled: it is this rank's action ", cell + 1, " too"));
  cell = static_cast<int32_t>(position);
  return absl::OkStatus();
}

absl::StatusOr<ActionTable> ActionTable::Create(const Schedule& schedule) {
  if (absl::Status status = CheckRanks(schedule); !status.ok()) return status;
  ActionTable table;
  table.micro_batches_ = static_cast<size_t>(schedule.num_micro_batches);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const absl::Status added = table.Add(schedule, rank, i);
      if (!added.ok()) return added;
    }
  }
  return table;
}

}  // namespace rankwise
