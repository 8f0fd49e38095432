#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "parallel/pipeline/generators.h"

namespace rankwise {
namespace {

// The list of one rank. `down` is its stage on the way down the V, `up` the one
// on the way back up; each counts its own F, I and W.
class RankList {
 public:
  RankList(int rank, int p, int m)
      : down_{rank, {}}, up_{2 * p - 1 - rank, {}}, m_(m) {}

  void Down(absl::string_view kinds) { Add(down_, kinds); }
  void Up(absl::string_view kinds) { Add(up_, kinds); }

  int DownCount(ActionKind kind) const { return Count(down_, kind); }
  int UpCount(ActionKind kind) const { return Count(up_, kind); }
  std::vector<Action> Take() { return std::move(actions_); }

 private:
  struct Chunk {
    int stage;
    int count[kNumActionKinds];
  };

  static int Count(const Chunk& chunk, ActionKind kind) {
    return chunk.count[static_cast<size_t>(kind)];
  }

  // The next action of each kind in "FIW" that `kinds` names.
  void Add(Chunk& chunk, absl::string_view kinds) {
    for (const char letter : kinds) {
      const ActionKind kind = letter == 'F'   ? ActionKind::kForward
                              : letter == 'I' ? ActionKind::kInputGrad
                                              : ActionKind::kWeightGrad;
      const int micro_batch = chunk.count[static_cast<size_t>(kind)]++;
      if (micro_batch < m_)
        actions_.push_back({chunk.stage, micro_batch, kind});
    }
  }

  Chunk down_, up_;
  int m_;
  std::vector<Action> actions_;
};

std::vector<Action> ActionsOf(int rank, int p, int m) {
  const int n = std::max(m, 2 * p - 1);
  RankList list(rank, p, m);
  // Warm-up, until the first micro-batch comes back up ...
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.Down("F");
  for (int i = 0; i < rank; ++i) {
    list.Up("F");
    list.Down("F");
  }
  // ... and turns at the last stage.
  for (int i = 0; i < p - rank; ++i) list.Up("FIW");
  // Steady state: one micro-batch down and back, one up and back.
  while (list.UpCount(ActionKind::kForward) < n) {
    if (list.DownCount(ActionKind::kForward) < n) list.Down("F");
    list.Down("IW");
    list.Up("FIW");
  }
  // Cool-down: the gradients that others wait for first.
  for (int i = 0; i < rank; ++i) {
    list.Down("I");
    list.Up("I");
  }
  for (int i = 0; i < p - rank; ++i) list.Down("IW");
  while (list.UpCount(ActionKind::kWeightGrad) < n) list.Up("W");
  while (list.DownCount(ActionKind::kWeightGrad) < n) list.Down("W");
  return list.Take();
}

}  // namespace

Schedule ZeroBubbleV(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 2);
  for (int rank = 0; rank < p; ++rank) {
    schedule.rank_of_stage[2 * p - 1 - rank] = rank;
    schedule.actions[rank] = ActionsOf(rank, p, m);
  }
  return schedule;
}

}  // namespace rankwise
