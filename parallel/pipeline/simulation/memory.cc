#include "parallel/pipeline/simulation/memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

namespace rankwise {
namespace {

// The buffers of receives, by size; later receives use them again.
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

// One rank's memory, action by action.
class RankMemory {
 public:
  RankMemory(const Schedule& schedule, int rank, const StepMemory& memory)
      : values_(schedule),
        releases_(FindSendReleases(schedule, rank)),
        memory_(memory) {}

  double now() const { return kept_ + received_.bytes(); }

  // Returns what is held as `action`'s forward ends or its backward begins;
  // nothing for other actions.
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
        break;  // the sent value stays where it is
    }
    return std::nullopt;
  }

 private:
  struct Made {
    double bytes = 0;
    int holders = 0;
  };

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
    made_[value] = {bytes, holders};
    kept_ += bytes;
  }

  void Drop(size_t value) {
    const auto made = made_.find(value);
    if (made == made_.end() || --made->second.holders > 0) return;
    kept_ -= made->second.bytes;
    made_.erase(made);
  }

  // `value` has been received, which shows that sent values have arrived.
  void TakeArrivals(size_t value) {
    const auto arrived = releases_.find(value);
    if (arrived == releases_.end()) return;
    for (const size_t sent : arrived->second) Drop(sent);
  }

  // Frees a value after its last use.
  void FreeUsed(size_t value, double bytes) {
    if (value == Values::kNone) return;
    if (values_.CrossesRanks(value)) return received_.Free(bytes);
    Drop(value);
  }

  const Values values_;
  const SendReleases releases_;
  const StepMemory& memory_;
  double kept_ = 0;  // includes values made here
  ReceiveBuffers received_;
  std::unordered_map<size_t, Made> made_;  // by value
};

}  // namespace

double PeakBytes(const Schedule& schedule, absl::Span<const int> ranks,
                 const StepMemory& memory) {
  std::map<int, RankMemory> by_rank;
  for (const int rank : ranks)
    by_rank.try_emplace(rank, schedule, rank, memory);
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

}  // namespace rankwise
