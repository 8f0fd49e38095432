#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "parallel/pipeline/schedule/builders.h"

namespace rankwise {
namespace {

// The two directions through the stages of a V-shaped schedule.
enum Way { kDown, kUp };

// The list of one rank, which has one stage in each direction and counts each
// stage's F, I and W; B counts as both halves.
class RankList {
 public:
  RankList(int rank, int p, int m) : stages_{rank, 2 * p - 1 - rank}, m_(m) {}

  int Count(Way way, ActionKind kind) const {
    return counts_[way][static_cast<size_t>(kind)];
  }
  // Adds the next action of each kind in `kinds`, letters of "FBIW".
  void Add(Way way, absl::string_view kinds) {
    for (const char letter : kinds) {
      const auto kind =
          static_cast<ActionKind>(absl::string_view("FBIW").find(letter));
      const bool whole = kind == ActionKind::kBackward;
      if (whole) Next(way, ActionKind::kWeightGrad);
      const int micro_batch = Next(way, whole ? ActionKind::kInputGrad : kind);
      if (micro_batch < m_)
        actions_.push_back({stages_[way], micro_batch, kind});
    }
  }
  // Adds the next F of one direction, overlapped with the next B of the other.
  void AddPair(Way forward, Way backward) {
    Add(forward, "F");
    Add(backward, "B");
    actions_.back().overlapped = true;
  }
  std::vector<Action> Take() { return std::move(actions_); }

 private:
  int Next(Way way, ActionKind kind) {
    return counts_[way][static_cast<size_t>(kind)]++;
  }

  const int stages_[2];
  const int m_;
  int counts_[2][kNumActionKinds] = {};
  std::vector<Action> actions_;
};

std::vector<Action> ZbvActions(int rank, int p, int m) {
  const int n = std::max(m, 2 * p - 1);
  RankList list(rank, p, m);
  // Warm-up, until the first micro-batch returns on the way up ...
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.Add(kDown, "F");
  for (int i = 0; i < rank; ++i) {
    list.Add(kUp, "F");
    list.Add(kDown, "F");
  }
  // ... and turns at the last stage.
  for (int i = 0; i < p - rank; ++i) list.Add(kUp, "FIW");
  // Steady state: one micro-batch down and back, one up and back.
  while (list.Count(kUp, ActionKind::kForward) < n) {
    if (list.Count(kDown, ActionKind::kForward) < n) list.Add(kDown, "F");
    list.Add(kDown, "IW");
    list.Add(kUp, "FIW");
  }
  // Cool-down: first the gradients that other ranks need.
  for (int i = 0; i < rank; ++i) {
    list.Add(kDown, "I");
    list.Add(kUp, "I");
  }
  for (int i = 0; i < p - rank; ++i) list.Add(kDown, "IW");
  while (list.Count(kUp, ActionKind::kWeightGrad) < n) list.Add(kUp, "W");
  while (list.Count(kDown, ActionKind::kWeightGrad) < n) list.Add(kDown, "W");
  return list.Take();
}

// The steps are those of DualPipe; `below` ranks come after this one.
std::vector<Action> DualPipeVActions(int rank, int p, int m) {
  const int below = p - 1 - rank;
  RankList list(rank, p, m);
  // Warm-up, until the first micro-batch returns on the way up ...
  for (int i = 0; i < 2 * below; ++i) list.Add(kDown, "F");
  for (int i = 0; i <= rank; ++i) {
    list.Add(kDown, "F");
    list.Add(kUp, "F");
  }
  // ... and turns.
  for (int i = 0; i < below; ++i) list.Add(kUp, "IWF");
  // Steady state: one micro-batch down while one returns, then one up.
  for (int i = 0; i <= m - 2 * p + rank; ++i) {
    if (i == 0 && below == 0) {
      // Not paired: F alone ends sooner, and all ranks wait for it.
      list.Add(kDown, "F");
      list.Add(kUp, "B");
    } else {
      list.AddPair(kDown, kUp);
    }
    list.AddPair(kUp, kDown);
  }
  for (int i = 0; i < below; ++i) {
    list.Add(kUp, "B");
    list.AddPair(kUp, kDown);
  }
  // Cool-down: in its second half W is deferred, so that gradients come sooner.
  std::deque<Way> waiting;
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const Way way = i % 2 == 0 ? kUp : kDown;
    list.Add(way, i <= rank ? "B" : "I");
    if (i > rank) waiting.push_back(way);
  }
  for (int i = 0; i < below; ++i) {
    list.Add(waiting.front(), "W");
    waiting.pop_front();
    list.Add(kDown, "I");
    waiting.push_back(kDown);
  }
  for (const Way way : waiting) list.Add(way, "W");
  return list.Take();
}

// Builds either schedule; `actions_of` returns the list of one rank.
Schedule InVShape(int p, int m,
                  std::vector<Action> (*actions_of)(int rank, int p, int m)) {
  Schedule schedule = EmptySchedule(p, m, 2);
  for (int rank = 0; rank < p; ++rank) {
    schedule.rank_of_stage[2 * p - 1 - rank] = rank;
    schedule.actions[rank] = actions_of(rank, p, m);
  }
  return schedule;
}

}  // namespace

Schedule ZeroBubbleV(int p, int m, int) { return InVShape(p, m, ZbvActions); }

Schedule DualPipeV(int p, int m, int) {
  return InVShape(p, m, DualPipeVActions);
}

}  // namespace rankwise
