#include "parallel/pipeline/simulation/memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace rankwise {
namespace {

// The buffers of receives, by size; reused by later receives.
class ReceiveBuffers {
 public:
  void Take(double bytes) {
    Buffers& buffers = by_size_[bytes];
    if (++buffers.used <= buffers.all) return;
    ++buffers.all;
    bytes_ += bytes;
  }
  void Free(double bytes) { --by_size_[bytes].used; }
  double bytes() const { return bytes_; }

 private:
  struct Buffers {
    int used = 0, all = 0;
  };

  std::map<double, Buffers> by_size_;
  double bytes_ = 0;
};

// The values of all ranks, in arrays for speed: a planner evaluates thousands
// of schedules.
struct AllValues {
  struct Made {
    double bytes = 0;
    int holders = 0;
  };

  explicit AllValues(const Schedule& schedule)
      : numbers(schedule), releases(schedule), made(numbers.count()) {}

  const Values numbers;
  const SendReleases releases;
  std::vector<Made> made;
};

// One rank's memory, action by action.
class RankMemory {
 public:
  RankMemory(AllValues& values, const StepMemory& memory)
      : all_(values), values_(values.numbers), memory_(memory) {}

  double now() const { return kept_ + received_.bytes(); }

  // Returns the bytes held when `action`'s forward ends or its backward begins;
  // nullopt for other actions.
  std::optional<double> Perform(const Action& action) {
    const StageBytes& stage = memory_.stages[static_cast<size_t>(action.stage)];
    switch (action.kind) {
      case ActionKind::kForward:
        return Forward(action, stage);
      case ActionKind::kBackward:
      case ActionKind::kInputGrad:
        return Backward(action, stage);
      case ActionKind::kWeightGrad:
        kept_ -= stage.until_weight_grad;
        FreeInput(action, stage);
        break;
      case ActionKind::kRecvForward:
        received_.Take(stage.input);
        break;
      case ActionKind::kRecvBackward:
        received_.Take(stage.output);
        break;
      case ActionKind::kSendForward:
      case ActionKind::kSendBackward:
        break;  // the sent value stays allocated
    }
    return std::nullopt;
  }

 private:
  double Forward(const Action& action, const StageBytes& stage) {
    TakeArrivals(values_.NeededBy(action));
    kept_ += stage.kept;
    // Held until it is sent or used, and for backward unless that recomputes.
    Make(values_.MadeBy(action), stage.output, memory_.recompute ? 1 : 2);
    return now();
  }

  double Backward(const Action& action, const StageBytes& stage) {
    const size_t gradient = values_.NeededBy(action);
    TakeArrivals(gradient);
    const double held = now() + stage.recomputed;
    kept_ -= stage.kept;
    if (!memory_.recompute) Drop(values_.MadeBy(ForwardOf(action)));
    FreeUsed(gradient, stage.output);
    if (action.kind == ActionKind::kBackward) {
      FreeInput(action, stage);
    } else {
      kept_ += stage.until_weight_grad;
    }
    Make(values_.MadeBy(action), stage.input, 1);
    return held;
  }

  static Action ForwardOf(const Action& action) {
    return {action.stage, action.micro_batch, ActionKind::kForward};
  }

  void FreeInput(const Action& action, const StageBytes& stage) {
    FreeUsed(values_.NeededBy(ForwardOf(action)), stage.input);
  }

  void Make(size_t value, double bytes, int holders) {
    if (value == Values::kNone) return;
    all_.made[value] = {bytes, holders};
    kept_ += bytes;
  }

  void Drop(size_t value) {
    if (value == Values::kNone) return;
    AllValues::Made& made = all_.made[value];
    if (made.holders > 0 && --made.holders == 0) kept_ -= made.bytes;
  }

  // Frees the sent values whose arrival the received `value` proves.
  void TakeArrivals(size_t value) {
    all_.releases.VisitArrived(value, [this](size_t sent) { Drop(sent); });
  }

  // Frees a value after its last use.
  void FreeUsed(size_t value, double bytes) {
    if (value == Values::kNone) return;
    if (values_.CrossesRanks(value)) return received_.Free(bytes);
    Drop(value);
  }

  AllValues& all_;
  const Values& values_;
  const StepMemory& memory_;
  double kept_ = 0;  // includes values made here
  ReceiveBuffers received_;
};

}  // namespace

StageBytes StageBytesOf(const StageParts& parts, bool recompute) {
  StageBytes stage = {.input = parts.input, .output = parts.output};
  const double kept = parts.kept - (parts.keeps_input ? parts.input : 0);
  // The first stage has no input gradient and leaves everything to W; the
  // gradient of its output replaces the output.
  const bool is_first = parts.input == 0;
  stage.until_weight_grad =
      kept + (is_first ? parts.output : parts.until_weight_grad);
  if (recompute) {
    stage.recomputed = kept + parts.output;
  } else {
    stage.kept = kept;
  }
  return stage;
}

std::vector<StagePass> PassesOf(const Schedule& schedule,
                                absl::Span<const int> ranks, bool recompute) {
  std::vector<StagePass> passes;
  std::map<int, size_t> last;  // backward, by stage
  for (const int rank : ranks) {
    for (const Action& action : schedule.actions[static_cast<size_t>(rank)]) {
      const bool backward = action.kind == ActionKind::kBackward ||
                            action.kind == ActionKind::kWeightGrad;
      if (action.kind == ActionKind::kForward || (backward && recompute))
        passes.push_back({action.stage});
      if (!backward) continue;
      last[action.stage] = passes.size();
      passes.push_back({action.stage, /*backward=*/true});
    }
  }
  for (const auto& [stage, pass] : last) passes[pass].completes = true;
  return passes;
}

double PeakBytes(const Schedule& schedule, absl::Span<const int> ranks,
                 const StepMemory& memory) {
  AllValues values(schedule);
  std::map<int, RankMemory> by_rank;
  for (const int rank : ranks) by_rank.try_emplace(rank, values, memory);
  const std::vector<int> order =
      ranks.size() == 1
          ? std::vector<int>(schedule.actions[ranks[0]].size(), ranks[0])
          : IssueOrder(schedule);
  std::map<int, size_t> next;
  double most = 0;
  for (const int rank : order) {
    const auto found = by_rank.find(rank);
    if (found == by_rank.end()) continue;
    const std::optional<double> own =
        found->second.Perform(schedule.actions[rank][next[rank]++]);
    if (!own.has_value()) continue;
    double all = *own - found->second.now();
    for (const auto& [other, held] : by_rank) all += held.now();
    most = std::max(most, all);
  }
  return most;
}

std::vector<double> PeakBytesPerRank(const Schedule& schedule,
                                     const StepMemory& memory) {
  AllValues values(schedule);
  std::vector<double> peaks;
  for (const std::vector<Action>& actions : schedule.actions) {
    RankMemory rank(values, memory);
    double most = 0;
    for (const Action& action : actions)
      most = std::max(most, rank.Perform(action).value_or(0));
    peaks.push_back(most);
  }
  return peaks;
}

}  // namespace rankwise
