#include "parallel/pipeline/simulation/strict_backend_for_test.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace rankwise {
namespace {

// The messages that one rank has issued with one other.
struct Queue {
  std::vector<size_t> values;
  size_t done = 0;

  size_t Running() const {
    return done < values.size() ? values[done] : Values::kNone;
  }
};

class StrictBackend {
 public:
  explicit StrictBackend(const Schedule& schedule)
      : schedule_(schedule),
        values_(schedule),
        usable_(values_.count(), false),
        next_(schedule.actions.size(), 0) {}

  bool Run() {
    while (IssueAll() || TransferAll()) {
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < schedule_.actions[rank].size()) return false;
    }
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& entry) {
      return entry.second.Running() == Values::kNone;
    });
  }

 private:
  // Advances every rank as far as possible.
  bool IssueAll() {
    bool progress = false;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const std::vector<Action>& actions = schedule_.actions[rank];
      for (size_t& i = next_[rank]; i < actions.size(); ++i) {
        if (!Issue(rank, actions[i])) break;
        progress = true;
      }
    }
    return progress;
  }

  bool Issue(int rank, const Action& action) {
    if (IsCompute(action.kind)) {
      const size_t needed = values_.NeededBy(action);
      if (needed != Values::kNone && !usable_[needed]) return false;
      const size_t made = values_.MadeBy(action);
      if (made != Values::kNone && RankOf(values_.UserOf(made)) == rank)
        usable_[made] = true;
      return true;
    }
    const size_t value = values_.CarriedBy(action);
    const int maker = RankOf(values_.MakerOf(value));
    const int peer = maker == rank ? RankOf(values_.UserOf(value)) : maker;
    queues_[{rank, peer}].values.push_back(value);
    return true;
  }

  // Transfers the messages that both sides have reached.
  bool TransferAll() {
    bool progress = false;
    for (auto& [ranks, queue] : queues_) {
      if (ranks.first > ranks.second) continue;
      Queue& theirs = queues_[{ranks.second, ranks.first}];
      const size_t value = queue.Running();
      if (value == Values::kNone || value != theirs.Running()) continue;
      usable_[value] = true;
      ++queue.done;
      ++theirs.done;
      progress = true;
    }
    return progress;
  }

  int RankOf(int stage) const { return schedule_.rank_of_stage[stage]; }

  const Schedule& schedule_;
  const Values values_;
  std::vector<bool> usable_;  // [value]
  std::vector<size_t> next_;  // [rank]
  std::map<std::pair<int, int>, Queue> queues_;
};

}  // namespace

bool RunsOnStrictBackend(const Schedule& schedule) {
  return StrictBackend(schedule).Run();
}

}  // namespace rankwise
