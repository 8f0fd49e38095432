#include "parallel/pipeline/schedule/builders.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"

namespace rankwise {
namespace {

// p ranks without actions, stage s on rank s mod p.
Schedule EmptySchedule(int p, int m, int v) {
  Schedule schedule;
  schedule.num_micro_batches = m;
  schedule.actions.resize(static_cast<size_t>(p));
  for (int stage = 0; stage < p * v; ++stage) {
    schedule.rank_of_stage.push_back(stage % p);
  }
  return schedule;
}

// The k-th forward of each rank: a round takes p micro-batches through the
// rank's first chunk, then through its second, and so on.
struct Unit {
  int chunk;
  int micro_batch;
};

Unit UnitAt(int k, int p, int v) {
  const int round = k / (p * v);
  return {k % (p * v) / p, round * p + k % p};
}

// The list of one rank in the schedule in the shape of a V. `down` is its stage
// on the way down the V, `up` the one on the way back up; each counts its own
// F, I and W.
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

std::vector<Action> ZbvActions(int rank, int p, int m) {
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

// An action and its place in the one order of a forward schedule.
struct Event {
  int time = 0;
  int stage = 0;  // that computes or sends
  Action action;

  bool operator<(const Event& other) const {
    return std::tie(time, other.stage) < std::tie(other.time, stage);
  }
};

}  // namespace

Schedule NaiveSchedule(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    for (int i = 0; i < m; ++i) {
      schedule.actions[rank].push_back({rank, i, ActionKind::kForward});
      schedule.actions[rank].push_back({rank, i, ActionKind::kBackward});
    }
  }
  return schedule;
}

Schedule GPipeSchedule(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    for (int i = 0; i < m; ++i) {
      schedule.actions[rank].push_back({rank, i, ActionKind::kForward});
    }
    for (int i = 0; i < m; ++i) {
      schedule.actions[rank].push_back({rank, i, ActionKind::kBackward});
    }
  }
  return schedule;
}

Schedule OneForwardOneBackward(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Action>& actions = schedule.actions[rank];
    actions.reserve(2 * static_cast<size_t>(m));
    // Backwards run this many micro-batches behind the forwards.
    const int warmup = p - 1 - rank;
    for (int i = 0; i < m + warmup; ++i) {
      if (i < m) actions.push_back({rank, i, ActionKind::kForward});
      if (i >= warmup)
        actions.push_back({rank, i - warmup, ActionKind::kBackward});
    }
  }
  return schedule;
}

Schedule InterleavedOneForwardOneBackward(int p, int m, int v) {
  Schedule schedule = EmptySchedule(p, m, v);
  const int units = (m + p - 1) / p * p * v;
  for (int rank = 0; rank < p; ++rank) {
    const auto add = [&](int chunk, int micro_batch, ActionKind kind) {
      if (micro_batch >= m) return;
      schedule.actions[rank].push_back({chunk * p + rank, micro_batch, kind});
    };
    const int warmup = std::min(2 * (p - 1 - rank) + (v - 1) * p, units);
    for (int k = 0; k < units + warmup; ++k) {
      if (k < units) {
        const Unit unit = UnitAt(k, p, v);
        add(unit.chunk, unit.micro_batch, ActionKind::kForward);
      }
      if (k >= warmup) {
        const Unit unit = UnitAt(k - warmup, p, v);
        add(v - 1 - unit.chunk, unit.micro_batch, ActionKind::kBackward);
      }
    }
  }
  return schedule;
}

Schedule ZeroBubbleH1(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Action>& actions = schedule.actions[rank];
    // I runs p - 1 - rank micro-batches behind F, as B in 1F1B, and W another
    // rank behind I: the later the rank, the fewer activations wait for I, the
    // more may wait for W.
    const int warmup = p - 1 - rank;
    for (int i = 0; i < m + p - 1; ++i) {
      if (i < m) actions.push_back({rank, i, ActionKind::kForward});
      if (i >= warmup && i - warmup < m)
        actions.push_back({rank, i - warmup, ActionKind::kInputGrad});
      if (i >= p - 1)
        actions.push_back({rank, i - (p - 1), ActionKind::kWeightGrad});
    }
  }
  return schedule;
}

Schedule ZeroBubbleV(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 2);
  for (int rank = 0; rank < p; ++rank) {
    schedule.rank_of_stage[2 * p - 1 - rank] = rank;
    schedule.actions[rank] = ZbvActions(rank, p, m);
  }
  return schedule;
}

Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches) {
  Schedule schedule;
  schedule.name = "forward";
  schedule.num_micro_batches = num_micro_batches;
  const int num_stages = static_cast<int>(rank_of_stage.size());
  const int chunks = (num_stages + num_ranks - 1) / num_ranks;
  std::vector<std::vector<Event>> events(num_ranks);
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    for (int stage = 0; stage < num_stages; ++stage) {
      // A rank has time for `chunks` stages between two micro-batches. What a
      // stage makes at an even time travels at the odd one after it.
      const int time = 2 * (micro_batch * chunks + stage);
      const int rank = rank_of_stage[stage];
      events[rank].push_back(
          {time, stage, {stage, micro_batch, ActionKind::kForward}});
      if (stage + 1 == num_stages || rank_of_stage[stage + 1] == rank) continue;
      events[rank].push_back(
          {time + 1, stage, {stage, micro_batch, ActionKind::kSendForward}});
      events[rank_of_stage[stage + 1]].push_back(
          {time + 1,
           stage,
           {stage + 1, micro_batch, ActionKind::kRecvForward}});
    }
  }
  for (std::vector<Event>& list : events) {
    std::sort(list.begin(), list.end());
    schedule.actions.emplace_back();
    for (const Event& event : list) {
      schedule.actions.back().push_back(event.action);
    }
  }
  schedule.rank_of_stage = std::move(rank_of_stage);
  return schedule;
}

}  // namespace rankwise
