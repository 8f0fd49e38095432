#include "parallel/pipeline/schedule/validate.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/dry_run.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Kind = ActionKind;

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

// "rank 1, action 5 (1F3)": positions in a rank's list count from 1.
std::string PlaceOf(int rank, size_t position, const Action& action) {
  return absl::StrCat("rank ", rank, ", action ", position + 1, " (",
                      ToString(action), ")");
}

// The position of every action in its rank's list.
class ActionTable {
 public:
  static constexpr int32_t kMissing = -1;

  // InvalidArgument that names the place: a stage, micro-batch or rank that
  // does not exist, an action on another rank than its stage's, a doubled one.
  static absl::StatusOr<ActionTable> Create(const Schedule& schedule);

  // kMissing where there is none.
  int32_t PositionOf(ActionKind kind, int stage, int micro_batch) const {
    const std::vector<int32_t>& positions =
        positions_[static_cast<size_t>(kind)];
    return positions.empty() ? kMissing : positions[Cell(stage, micro_batch)];
  }
  int32_t PositionOf(const Action& action) const {
    return PositionOf(action.kind, action.stage, action.micro_batch);
  }

 private:
  size_t Cell(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * micro_batches_ +
           static_cast<size_t>(micro_batch);
  }
  absl::Status Add(const Schedule& schedule, int rank, size_t position);

  size_t micro_batches_ = 0;
  // [kind][stage, micro-batch]; empty for a kind that does not occur.
  std::vector<int32_t> positions_[kNumActionKinds];
};

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
  RETURN_IF_ERROR(CheckRanks(schedule));
  ActionTable table;
  table.micro_batches_ = static_cast<size_t>(schedule.num_micro_batches);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      RETURN_IF_ERROR(table.Add(schedule, rank, i));
    }
  }
  return table;
}

absl::Status Missing(const Schedule& schedule, const Action& action,
                     absl::string_view detail) {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", schedule.rank_of_stage[action.stage],
                   ": missing action ", ToString(action), detail));
}

// One F, and one B or both of I and W.
absl::Status CheckComplete(const Schedule& schedule, const ActionTable& table,
                           int stage, int micro_batch) {
  const auto has = [&](Kind kind) {
    return table.PositionOf(kind, stage, micro_batch) != ActionTable::kMissing;
  };
  const auto action = [&](Kind kind) {
    return Action{stage, micro_batch, kind};
  };
  if (!has(Kind::kForward))
    return Missing(schedule, action(Kind::kForward), "");
  const bool whole = has(Kind::kBackward);
  if (whole && (has(Kind::kInputGrad) || has(Kind::kWeightGrad))) {
    const Kind half =
        has(Kind::kInputGrad) ? Kind::kInputGrad : Kind::kWeightGrad;
    const int rank = schedule.rank_of_stage[stage];
    return absl::InvalidArgumentError(absl::StrCat(
        PlaceOf(rank, table.PositionOf(half, stage, micro_batch), action(half)),
        ": doubled: ", ToString(action(Kind::kBackward)),
        " computes it already"));
  }
  if (whole) return absl::OkStatus();
  if (!has(Kind::kInputGrad) && !has(Kind::kWeightGrad))
    return Missing(schedule, action(Kind::kBackward), "");
  if (!has(Kind::kInputGrad))
    return Missing(schedule, action(Kind::kInputGrad), " (W needs it)");
  if (!has(Kind::kWeightGrad))
    return Missing(schedule, action(Kind::kWeightGrad),
                   " (the other half of I)");
  return absl::OkStatus();
}

// What an action needs that its own rank does.
class OrderChecker {
 public:
  OrderChecker(const Schedule& schedule, const ActionTable& table)
      : schedule_(schedule),
        table_(table),
        values_(schedule),
        has_communication_(HasCommunication(schedule)) {}

  absl::Status Check(int rank, size_t position) const {
    const Action& action = schedule_.actions[rank][position];
    for (const Action& needed : NeedsOf(action)) {
      const int32_t at = table_.PositionOf(needed);
      if (at == ActionTable::kMissing || at < static_cast<int32_t>(position))
        continue;
      return absl::InvalidArgumentError(
          absl::StrCat(PlaceOf(rank, position, action), ": use before ",
                       ToString(needed), ", which is action ", at + 1));
    }
    return absl::OkStatus();
  }

 private:
  // Of those that are missing, other checks complain where it is wrong.
  std::vector<Action> NeedsOf(const Action& action) const {
    const auto of_same = [&](Kind kind) {
      return Action{action.stage, action.micro_batch, kind};
    };
    std::vector<Action> needs;
    switch (action.kind) {
      case Kind::kBackward:
      case Kind::kInputGrad:
        needs.push_back(of_same(Kind::kForward));
        break;
      case Kind::kWeightGrad:
        needs.push_back(of_same(Kind::kInputGrad));
        break;
      case Kind::kSendForward:
        needs.push_back(of_same(Kind::kForward));
        break;
      case Kind::kSendBackward:
        needs.push_back(of_same(Kind::kBackward));
        needs.push_back(of_same(Kind::kInputGrad));
        break;
      default:
        break;
    }
    AddArrival(values_.NeededBy(action), &needs);
    return needs;
  }

  // How a value comes from another stage: made on this rank, or received.
  void AddArrival(size_t value, std::vector<Action>* needs) const {
    if (value == Values::kNone) return;
    const int maker = values_.MakerOf(value);
    if (schedule_.rank_of_stage[maker] !=
        schedule_.rank_of_stage[values_.UserOf(value)]) {
      if (has_communication_) needs->push_back(values_.ReceiveOf(value));
      return;
    }
    Action made = values_.SendOf(value);
    if (made.kind == Kind::kSendForward) {
      made.kind = Kind::kForward;
      needs->push_back(made);
      return;
    }
    for (const Kind kind : {Kind::kBackward, Kind::kInputGrad}) {
      made.kind = kind;
      needs->push_back(made);
    }
  }

  const Schedule& schedule_;
  const ActionTable& table_;
  const Values values_;
  const bool has_communication_;
};

absl::Status CheckActions(const Schedule& schedule, const ActionTable& table) {
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    for (int i = 0; i < schedule.num_micro_batches; ++i) {
      RETURN_IF_ERROR(CheckComplete(schedule, table, stage, i));
    }
  }
  const OrderChecker order(schedule, table);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      RETURN_IF_ERROR(order.Check(rank, i));
    }
  }
  return absl::OkStatus();
}

int PeakActivations(const std::vector<Action>& actions) {
  int kept = 0, peak = 0;
  for (const Action& action : actions) {
    if (action.kind == Kind::kForward) peak = std::max(peak, ++kept);
    if (action.kind == Kind::kBackward || action.kind == Kind::kWeightGrad)
      --kept;
  }
  return peak;
}

// What one rank issues with one other rank, in order.
struct Issued {
  size_t value;
  size_t position;  // in the rank's list
};

using Messages = std::vector<Issued>;

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

// Adds the communication action at `position` to its rank's messages with its
// peer.
absl::Status AddMessage(const Schedule& schedule, const Values& values,
                        int rank, size_t position,
                        std::map<std::pair<int, int>, Messages>* all) {
  const Action& action = schedule.actions[rank][position];
  const size_t value = values.CarriedBy(action);
  if (value == Values::kNone || !CrossesRanks(schedule, values, value))
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(rank, position, action),
                     ": there is no other rank to exchange this with"));
  const int other_stage =
      IsSend(action.kind) ? values.UserOf(value) : values.MakerOf(value);
  const int peer = schedule.rank_of_stage[other_stage];
  (*all)[{rank, peer}].push_back({value, position});
  return absl::OkStatus();
}

// Both hold the same values, since each is sent and received once.
absl::Status CheckSameOrder(const Schedule& schedule, std::pair<int, int> ranks,
                            const Messages& mine, const Messages& theirs) {
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

// Every value that another rank needs is sent and received once, no other is,
// and two ranks issue what passes between them in the same order, one by one:
// for backends that match messages by their order (NCCL).
absl::Status CheckMessages(const Schedule& schedule, const ActionTable& table) {
  const Values values(schedule);
  std::map<std::pair<int, int>, Messages> all;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      RETURN_IF_ERROR(IsCompute(action.kind)
                          ? CheckPresent(schedule, table, values, action)
                          : AddMessage(schedule, values, rank, i, &all));
    }
  }
  for (const auto& [ranks, messages] : all) {
    if (ranks.first > ranks.second) continue;
    RETURN_IF_ERROR(CheckSameOrder(schedule, ranks, messages,
                                   all[{ranks.second, ranks.first}]));
  }
  return absl::OkStatus();
}

// The rank that `rank`, stuck before its action `position`, waits for.
int WaitsForRank(const Schedule& schedule, int rank, size_t position) {
  const Values values(schedule);
  const size_t value = values.NeededBy(schedule.actions[rank][position]);
  return schedule.rank_of_stage[values.MakerOf(value)];
}

// The ranks of the cycle, each waiting for the next, the last for the first.
// `done` as DryRun returns it. Every stuck rank waits for a stuck one, so that
// following them from any of them ends in a cycle.
std::vector<int> CycleFrom(const Schedule& schedule, int rank,
                           const std::vector<size_t>& done) {
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    rank = WaitsForRank(schedule, rank, done[rank]);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
  return path;
}

// "rank 0, action 2 (0B0), waits for 1B0, which rank 1 has as action 5".
std::string DescribeWait(const Schedule& schedule, int rank, size_t position) {
  const Values values(schedule);
  const Action& stuck = schedule.actions[rank][position];
  const size_t value = values.NeededBy(stuck);
  const int other = WaitsForRank(schedule, rank, position);
  const std::vector<Action>& others = schedule.actions[other];
  // Where there is communication, what has to happen is the send.
  const bool sent = HasCommunication(schedule);
  const auto awaited =
      std::find_if(others.begin(), others.end(), [&](const Action& action) {
        return sent ? IsSend(action.kind) && values.CarriedBy(action) == value
                    : values.MadeBy(action) == value;
      });
  return absl::StrCat(PlaceOf(rank, position, stuck), " waits for ",
                      ToString(*awaited), ", which is action ",
                      awaited - others.begin() + 1, " of rank ", other);
}

// The schedule is complete, with every rank's own order right. The error names
// the cycle, one rank a line.
absl::Status CheckNoDeadlock(const Schedule& schedule) {
  const std::vector<size_t> done = DryRun(schedule, [](int, size_t) {});
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    if (done[rank] == schedule.actions[rank].size()) continue;
    std::string message = "deadlock, ranks wait for each other in a cycle:";
    for (const int waiting : CycleFrom(schedule, rank, done)) {
      absl::StrAppend(&message, "\n  ",
                      DescribeWait(schedule, waiting, done[waiting]));
    }
    return absl::InvalidArgumentError(message);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule) {
  ASSIGN_OR_RETURN(const ActionTable table, ActionTable::Create(schedule));
  RETURN_IF_ERROR(CheckActions(schedule, table));
  if (HasCommunication(schedule)) {
    RETURN_IF_ERROR(CheckMessages(schedule, table));
  }
  RETURN_IF_ERROR(CheckNoDeadlock(schedule));
  ScheduleFacts facts;
  for (const std::vector<Action>& actions : schedule.actions) {
    facts.peak_activations.push_back(PeakActivations(actions));
  }
  return facts;
}

}  // namespace rankwise
