#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Kind = ActionKind;

// Actions that need another action of the same stage and micro-batch.
constexpr struct {
  Kind action, needed;
} kNeedsOfKinds[] = {
    {Kind::kBackward, Kind::kForward},
    {Kind::kInputGrad, Kind::kForward},
    {Kind::kWeightGrad, Kind::kInputGrad},
    {Kind::kSendForward, Kind::kForward},
    {Kind::kSendBackward, Kind::kBackward},
    {Kind::kSendBackward, Kind::kInputGrad},
};

// One rank's messages with one other rank, as positions in its list.
using Messages = std::vector<size_t>;

class Validator {
 public:
  explicit Validator(const Schedule& schedule)
      : schedule_(schedule),
        values_(schedule),
        has_communication_(HasCommunication(schedule)) {}

  absl::Status Check();

 private:
  static constexpr int32_t kMissing = -1;

  absl::Status CheckRanks() const;
  absl::Status CheckForwards() const;
  absl::Status AddToTable(int rank, size_t position);
  absl::Status CheckComplete(int stage, int micro_batch) const;
  absl::Status CheckOrder(int rank, size_t position) const;
  absl::Status CheckOverlap(int rank, size_t position) const;
  // Calls check(needed) for every action of the same rank that `action` needs;
  // returns the first error.
  template <typename CheckNeeded>
  absl::Status ForEachNeeded(const Action& action, CheckNeeded check) const;
  absl::Status CheckMessages() const;
  absl::Status CheckPresent(const Action& computation) const;
  absl::Status CheckSameOrder(std::pair<int, int> ranks, const Messages& mine,
                              const Messages& theirs) const;
  absl::Status CheckNoDeadlock() const;
  std::vector<int> CycleFrom(int rank, const std::vector<size_t>& done) const;
  std::string DescribeWait(int rank, const std::vector<size_t>& done) const;

  // Calls check(rank, position) for every action; returns the first error.
  template <typename CheckAction>
  absl::Status ForEachAction(CheckAction check) const {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      for (size_t i = 0; i < schedule_.actions[rank].size(); ++i) {
        RETURN_IF_ERROR(check(rank, i));
      }
    }
    return absl::OkStatus();
  }

  // Returns "rank 1, action 5 (1F3)"; positions in messages count from 1.
  std::string Place(int rank, size_t position) const {
    return absl::StrCat("rank ", rank, ", action ", position + 1, " (",
                        ToString(schedule_.actions[rank][position]), ")");
  }
  template <typename... Reason>
  absl::Status Refuse(int rank, size_t position, const Reason&... why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(Place(rank, position), ": ", why...));
  }
  absl::Status Missing(const Action& action, absl::string_view detail) const {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", schedule_.rank_of_stage[action.stage],
                     ": missing action ", ToString(action), detail));
  }

  size_t Cell(const Action& action) const {
    return static_cast<size_t>(action.stage) * schedule_.num_micro_batches +
           action.micro_batch;
  }
  int32_t PositionOf(const Action& action) const {
    const auto& positions = positions_[static_cast<size_t>(action.kind)];
    return positions.empty() ? kMissing : positions[Cell(action)];
  }
  bool Has(const Action& action) const {
    return PositionOf(action) != kMissing;
  }

  const Schedule& schedule_;
  const Values values_;
  const bool has_communication_;
  // The position of every action in its rank's list: [kind][stage,
  // micro-batch]; empty for a kind that does not occur.
  std::vector<int32_t> positions_[kNumActionKinds];
};

absl::Status Validator::Check() {
  RETURN_IF_ERROR(CheckRanks());
  RETURN_IF_ERROR(CheckForwards());
  RETURN_IF_ERROR(ForEachAction(
      [this](int rank, size_t i) { return AddToTable(rank, i); }));
  for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
    for (int i = 0; i < schedule_.num_micro_batches; ++i) {
      RETURN_IF_ERROR(CheckComplete(stage, i));
    }
  }
  RETURN_IF_ERROR(ForEachAction(
      [this](int rank, size_t i) { return CheckOrder(rank, i); }));
  if (has_communication_) {
    RETURN_IF_ERROR(CheckMessages());
  }
  return CheckNoDeadlock();
}

absl::Status Validator::CheckRanks() const {
  if (schedule_.num_micro_batches < 1 || schedule_.rank_of_stage.empty())
    return absl::InvalidArgumentError("the schedule is empty");
  const int num_ranks = schedule_.num_ranks();
  for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
    const int rank = schedule_.rank_of_stage[stage];
    if (rank < 0 || rank >= num_ranks)
      return absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage, " is on rank ", rank, " of ", num_ranks, " ranks"));
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (schedule_.actions[rank].empty())
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " has no actions"));
  }
  return absl::OkStatus();
}

// Refuses schedules with fewer actions than stages times micro-batches before
// allocating a table of that size, which may far exceed the file's size.
absl::Status Validator::CheckForwards() const {
  const size_t cells = values_.count() / 2;
  size_t num_actions = 0;
  for (const std::vector<Action>& actions : schedule_.actions)
    num_actions += actions.size();
  if (num_actions >= cells) return absl::OkStatus();
  std::set<size_t> forwards;
  for (const std::vector<Action>& actions : schedule_.actions) {
    for (const Action& action : actions) {
      if (action.kind == Kind::kForward) forwards.insert(Cell(action));
    }
  }
  size_t missing = 0;
  while (forwards.count(missing) > 0) ++missing;
  const size_t micro_batches = schedule_.num_micro_batches;
  return Missing({static_cast<int32_t>(missing / micro_batches),
                  static_cast<int32_t>(missing % micro_batches)},
                 "");
}

// Refuses a nonexistent stage, micro-batch or rank, an action on a different
// rank than its stage's, and a duplicate action.
absl::Status Validator::AddToTable(int rank, size_t position) {
  const Action& action = schedule_.actions[rank][position];
  if (action.stage < 0 || action.stage >= schedule_.num_stages())
    return Refuse(rank, position, "there is no such stage among ",
                  schedule_.num_stages(), " stages");
  if (action.micro_batch < 0 ||
      action.micro_batch >= schedule_.num_micro_batches)
    return Refuse(rank, position, "there is no such micro-batch among ",
                  schedule_.num_micro_batches, " micro-batches");
  const int home = schedule_.rank_of_stage[action.stage];
  if (home != rank)
    return Refuse(rank, position, "stage ", action.stage, " is on rank ", home);
  auto& positions = positions_[static_cast<size_t>(action.kind)];
  if (positions.empty()) positions.resize(values_.count() / 2, kMissing);
  int32_t& cell = positions[Cell(action)];
  if (cell != kMissing)
    return Refuse(rank, position, "duplicate: it is this rank's action ",
                  cell + 1, " too");
  cell = static_cast<int32_t>(position);
  return absl::OkStatus();
}

// Requires one F, and one B or both of I and W.
absl::Status Validator::CheckComplete(int stage, int micro_batch) const {
  const Action forward = {stage, micro_batch, Kind::kForward};
  const Action whole = {stage, micro_batch, Kind::kBackward};
  const Action input = {stage, micro_batch, Kind::kInputGrad};
  const Action weight = {stage, micro_batch, Kind::kWeightGrad};
  if (!Has(forward)) return Missing(forward, "");
  if (Has(whole)) {
    for (const Action& half : {input, weight}) {
      if (Has(half))
        return Refuse(schedule_.rank_of_stage[stage], PositionOf(half),
                      "duplicate: ", ToString(whole), " computes it already");
    }
    return absl::OkStatus();
  }
  if (!Has(input) && !Has(weight)) return Missing(whole, "");
  if (!Has(input)) return Missing(input, " (W needs it)");
  if (!Has(weight)) return Missing(weight, " (the other half of I)");
  return absl::OkStatus();
}

// Missing actions are left to the other checks.
template <typename CheckNeeded>
absl::Status Validator::ForEachNeeded(const Action& action,
                                      CheckNeeded check) const {
  const auto check_needs_of = [&](const Action& user) -> absl::Status {
    for (const auto& [kind, needed] : kNeedsOfKinds) {
      if (kind != user.kind) continue;
      RETURN_IF_ERROR(check({user.stage, user.micro_batch, needed}));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(check_needs_of(action));
  const size_t value = values_.NeededBy(action);
  if (value == Values::kNone) return absl::OkStatus();
  // Made on this rank, without a send.
  if (!values_.CrossesRanks(value))
    return check_needs_of(values_.SendOf(value));
  return has_communication_ ? check(values_.ReceiveOf(value))
                            : absl::OkStatus();
}

// Requires an action's needs on its own rank to precede it.
absl::Status Validator::CheckOrder(int rank, size_t position) const {
  RETURN_IF_ERROR(ForEachNeeded(
      schedule_.actions[rank][position], [&](const Action& needed) {
        const int32_t at = PositionOf(needed);
        if (at < static_cast<int32_t>(position)) return absl::OkStatus();
        return Refuse(rank, position, "use before ", ToString(needed),
                      ", which is action ", at + 1);
      }));
  return CheckOverlap(rank, position);
}

// Accepts only a B with the preceding F, of another stage or micro-batch.
absl::Status Validator::CheckOverlap(int rank, size_t position) const {
  const std::vector<Action>& actions = schedule_.actions[rank];
  const Action& action = actions[position];
  if (!action.overlapped) return absl::OkStatus();
  size_t at = position;
  while (at > 0 && !IsCompute(actions[at - 1].kind)) --at;
  if (action.kind != Kind::kBackward || at == 0 ||
      actions[at - 1].kind != Kind::kForward)
    return Refuse(rank, position, "only an F and the B after it overlap");
  const Action& forward = actions[at - 1];
  if (forward.stage == action.stage &&
      forward.micro_batch == action.micro_batch)
    return Refuse(rank, position, "overlaps ", ToString(forward),
                  ", which it needs");
  return absl::OkStatus();
}

// Requires one send and one receive for every value that another rank needs,
// and no other messages; and that two ranks issue their messages in the same
// order, one by one, for backends that match messages by order (NCCL).
absl::Status Validator::CheckMessages() const {
  std::map<std::pair<int, int>, Messages> all;
  RETURN_IF_ERROR(ForEachAction([&](int rank, size_t i) {
    const Action& action = schedule_.actions[rank][i];
    if (IsCompute(action.kind)) return CheckPresent(action);
    const size_t value = values_.CarriedBy(action);
    if (value == Values::kNone || !values_.CrossesRanks(value))
      return Refuse(rank, i, "there is no other rank to exchange this with");
    const int peer = IsSend(action.kind) ? values_.RankOfUser(value)
                                         : values_.RankOfMaker(value);
    all[{rank, peer}].push_back(i);
    return absl::OkStatus();
  }));
  for (const auto& [ranks, messages] : all) {
    if (ranks.first > ranks.second) continue;
    RETURN_IF_ERROR(
        CheckSameOrder(ranks, messages, all[{ranks.second, ranks.first}]));
  }
  return absl::OkStatus();
}

// Requires a send and a receive for a value that another rank needs.
absl::Status Validator::CheckPresent(const Action& computation) const {
  const size_t value = values_.MadeBy(computation);
  if (value == Values::kNone || !values_.CrossesRanks(value))
    return absl::OkStatus();
  for (const Action& action :
       {values_.SendOf(value), values_.ReceiveOf(value)}) {
    if (!Has(action)) return Missing(action, "");
  }
  return absl::OkStatus();
}

// Both lists hold the same values, since each is sent and received once.
absl::Status Validator::CheckSameOrder(std::pair<int, int> ranks,
                                       const Messages& mine,
                                       const Messages& theirs) const {
  const auto value_at = [&](int rank, size_t position) {
    return values_.CarriedBy(schedule_.actions[rank][position]);
  };
  for (size_t i = 0; i < mine.size(); ++i) {
    if (value_at(ranks.first, mine[i]) == value_at(ranks.second, theirs[i]))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ranks ", ranks.first, " and ", ranks.second,
                     " disagree about the message number ", i + 1,
                     " between them: ", Place(ranks.first, mine[i]),
                     " against ", Place(ranks.second, theirs[i]),
                     "; both must issue them in the same order"));
  }
  return absl::OkStatus();
}

// Requires a complete schedule in which every rank's own order is right. The
// error names the cycle, a rank per line. Below, `done` is DryRun's result.
absl::Status Validator::CheckNoDeadlock() const {
  const std::vector<size_t> done = DryRun(schedule_, [](int, size_t) {});
  for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
    if (done[rank] == schedule_.actions[rank].size()) continue;
    std::string message = "deadlock, ranks wait for each other in a cycle:";
    for (const int waiting : CycleFrom(rank, done)) {
      absl::StrAppend(&message, "\n  ", DescribeWait(waiting, done));
    }
    return absl::InvalidArgumentError(message);
  }
  return absl::OkStatus();
}

// Returns the ranks of the cycle, each waiting for the next, the last for the
// first. Every stuck rank waits for another stuck rank, so following the waits
// from any of them leads to a cycle.
std::vector<int> Validator::CycleFrom(int rank,
                                      const std::vector<size_t>& done) const {
  std::vector<int> path;
  auto first = path.end();
  while ((first = std::find(path.begin(), path.end(), rank)) == path.end()) {
    path.push_back(rank);
    rank = values_.RankOfMaker(
        values_.NeededBy(schedule_.actions[rank][done[rank]]));
  }
  path.erase(path.begin(), first);
  return path;
}

// Returns "rank 0, action 2 (0B0) waits for 1B0, which is action 5 of rank 1".
std::string Validator::DescribeWait(int rank,
                                    const std::vector<size_t>& done) const {
  const size_t value = values_.NeededBy(schedule_.actions[rank][done[rank]]);
  const int other = values_.RankOfMaker(value);
  const std::vector<Action>& others = schedule_.actions[other];
  // With communication, the rank waits for the send.
  const auto awaited =
      std::find_if(others.begin(), others.end(), [&](const Action& action) {
        return has_communication_
                   ? IsSend(action.kind) && values_.CarriedBy(action) == value
                   : values_.MadeBy(action) == value;
      });
  return absl::StrCat(Place(rank, done[rank]), " waits for ",
                      ToString(*awaited), ", which is action ",
                      awaited - others.begin() + 1, " of rank ", other);
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

}  // namespace

absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule) {
  RETURN_IF_ERROR(Validator(schedule).Check());
  ScheduleFacts facts;
  for (const std::vector<Action>& actions : schedule.actions) {
    facts.peak_activations.push_back(PeakActivations(actions));
  }
  return facts;
}

}  // namespace rankwise
