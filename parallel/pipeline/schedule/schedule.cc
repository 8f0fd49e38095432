#include "parallel/pipeline/schedule/schedule.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

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

// A backward action, and how many micro-batches it runs behind the forwards.
struct Behind {
  ActionKind kind;
  int lag;
};

// One stage per rank, whose every turn is F of the next micro-batch and then
// its backward actions, which `backwards_of(rank)` lists, the last one furthest
// behind.
template <typename BackwardsOf>
Schedule TakingTurns(int p, int m, BackwardsOf backwards_of) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    const std::vector<Behind> backwards = backwards_of(rank);
    const auto add = [&](int micro_batch, ActionKind kind) {
      if (micro_batch < 0 || micro_batch >= m) return;
      schedule.actions[rank].push_back({rank, micro_batch, kind});
    };
    for (int i = 0; i < m + backwards.back().lag; ++i) {
      add(i, ActionKind::kForward);
      for (const auto& [kind, lag] : backwards) add(i - lag, kind);
    }
  }
  return schedule;
}

// Model parallelism without a pipeline: a micro-batch goes all the way forward
// and back before the next one starts.
Schedule Naive(int p, int m, int) {
  return TakingTurns(p, m, [](int) {
    return std::vector<Behind>{{ActionKind::kBackward, 0}};
  });
}

// All forwards, then all backwards. Huang et al. 2019, "GPipe: Efficient
// Training of Giant Neural Networks using Pipeline Parallelism", section 2.3;
// backwards in ascending order.
Schedule GPipe(int p, int m, int) {
  return TakingTurns(p, m, [m](int) {
    return std::vector<Behind>{{ActionKind::kBackward, m}};
  });
}

// One forward, one backward: a rank keeps p micro-batches at most. Narayanan et
// al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
// Using Megatron-LM", section 2.2.1 (PipeDream-Flush).
Schedule OneForwardOneBackward(int p, int m, int) {
  return TakingTurns(p, m, [p](int rank) {
    return std::vector<Behind>{{ActionKind::kBackward, p - 1 - rank}};
  });
}

// 1F1B with the backward cut in two: W, which nobody waits for, fills time that
// 1F1B idles, within the memory of 1F1B. I is as far behind F as B in 1F1B, and
// W another `rank` micro-batches: the later the rank, the fewer activations
// wait for I, the more may wait for W. Qi et al. 2023, "Zero Bubble Pipeline
// Parallelism", ZB-H1 in the section on handcrafted schedules.
Schedule ZeroBubbleH1(int p, int m, int) {
  return TakingTurns(p, m, [p](int rank) {
    return std::vector<Behind>{{ActionKind::kInputGrad, p - 1 - rank},
                               {ActionKind::kWeightGrad, p - 1}};
  });
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

// 1F1B where rank r has the v stages r, r + p, r + 2p, ...: the bubble is a
// v-th as long. Narayanan et al. 2021, section 2.2.2. Micro-batches go in
// rounds of p. The paper requires m to be a multiple of p; here the last round
// is a full one from which the micro-batches from m on are left out.
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

// Two ways through the stages of a schedule in the shape of a V.
enum Way { kDown, kUp };

// The list of one rank, which has one stage on each way and counts the F, I and
// W of each.
class RankList {
 public:
  RankList(int rank, int p, int m) : stages_{rank, 2 * p - 1 - rank}, m_(m) {}

  int Count(Way way, ActionKind kind) const {
    return counts_[way][static_cast<size_t>(kind)];
  }
  // The next action of each kind in "FIW" that `kinds` names.
  void Add(Way way, absl::string_view kinds) {
    for (const char letter : kinds) {
      const ActionKind kind = letter == 'F'   ? ActionKind::kForward
                              : letter == 'I' ? ActionKind::kInputGrad
                                              : ActionKind::kWeightGrad;
      const int micro_batch = counts_[way][static_cast<size_t>(kind)]++;
      if (micro_batch < m_)
        actions_.push_back({stages_[way], micro_batch, kind});
    }
  }
  std::vector<Action> Take() { return std::move(actions_); }

 private:
  const int stages_[2];
  const int m_;
  int counts_[2][kNumActionKinds] = {};
  std::vector<Action> actions_;
};

std::vector<Action> ZbvActions(int rank, int p, int m) {
  const int n = std::max(m, 2 * p - 1);
  RankList list(rank, p, m);
  // Warm-up, until the first micro-batch comes back up ...
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
  // Cool-down: the gradients that others wait for first.
  for (int i = 0; i < rank; ++i) {
    list.Add(kDown, "I");
    list.Add(kUp, "I");
  }
  for (int i = 0; i < p - rank; ++i) list.Add(kDown, "IW");
  while (list.Count(kUp, ActionKind::kWeightGrad) < n) list.Add(kUp, "W");
  while (list.Count(kDown, ActionKind::kWeightGrad) < n) list.Add(kDown, "W");
  return list.Take();
}

// Two stages per rank in the shape of a V: rank r has stages r and 2p - 1 - r,
// so that the last stage is on rank 0, whose first backward need not wait for
// the way back. Qi et al. 2024, "Zero Bubble Pipeline Parallelism"
// (arXiv 2401.10241), section 6 (ZB-V). With fewer than 2p - 1 micro-batches it
// is the schedule of 2p - 1 from which the others are left out.
Schedule ZeroBubbleV(int p, int m, int) {
  Schedule schedule = EmptySchedule(p, m, 2);
  for (int rank = 0; rank < p; ++rank) {
    schedule.rank_of_stage[2 * p - 1 - rank] = rank;
    schedule.actions[rank] = ZbvActions(rank, p, m);
  }
  return schedule;
}

constexpr int kAnyChunks = 0;

struct Generator {
  absl::string_view name;
  int default_chunks;
  int only_chunks;  // or kAnyChunks
  Schedule (*make)(int p, int m, int v);
};

constexpr Generator kGenerators[] = {
    {"naive", 1, 1, Naive},
    {"gpipe", 1, 1, GPipe},
    {"1f1b", 1, 1, OneForwardOneBackward},
    {"interleaved_1f1b", 2, kAnyChunks, InterleavedOneForwardOneBackward},
    {"zero_bubble_h1", 1, 1, ZeroBubbleH1},
    {"zbv", 2, 2, ZeroBubbleV},
};

// Lists of more actions than this are a mistake: gigabytes.
constexpr int64_t kMostMicroBatchesOfStages = int64_t{1} << 26;

const Generator* FindGenerator(absl::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return &generator;
  }
  return nullptr;
}

absl::Status CheckShape(const ScheduleShape& shape) {
  for (const auto& [flag, value] :
       {std::pair("pp", shape.num_ranks),
        std::pair("microbatches", shape.num_micro_batches),
        std::pair("chunks", shape.chunks == 0 ? 1 : shape.chunks)}) {
    if (value >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value, ": must be at least 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckChunks(const Generator& generator, int chunks) {
  if (generator.only_chunks == kAnyChunks || chunks == generator.only_chunks)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--chunks=", chunks, ": --schedule=", generator.name, " has ",
      Counted(generator.only_chunks, "stage"), " per rank; leave out --chunks",
      generator.only_chunks == 1 ? ", or take --schedule=interleaved_1f1b"
                                 : ""));
}

absl::Status CheckSize(const ScheduleShape& shape, int chunks) {
  // Those with chunks are cut from a whole number of rounds.
  const int64_t micro_batches =
      chunks == 1 ? shape.num_micro_batches
                  : std::max<int64_t>(shape.num_micro_batches,
                                      2 * int64_t{shape.num_ranks});
  const double size = static_cast<double>(micro_batches) * chunks *
                      static_cast<double>(shape.num_ranks);
  if (size <= kMostMicroBatchesOfStages) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--pp=", shape.num_ranks, " --microbatches=", shape.num_micro_batches,
      " --chunks=", chunks, ": too large; their product must be at most ",
      kMostMicroBatchesOfStages));
}

absl::Status CheckFileFits(const Schedule& schedule,
                           const ScheduleShape& shape) {
  const auto refuse = [&](absl::string_view flag, int requested,
                          absl::string_view what, int has) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", requested, " does not fit --schedule=", schedule.name,
        ", which has ", has, " ", what));
  };
  if (shape.num_ranks != 0 && shape.num_ranks != schedule.num_ranks())
    return refuse("pp", shape.num_ranks, "rows, one per rank",
                  schedule.num_ranks());
  if (shape.num_micro_batches != 0 &&
      shape.num_micro_batches != schedule.num_micro_batches)
    return refuse("microbatches", shape.num_micro_batches, "micro-batches",
                  schedule.num_micro_batches);
  if (shape.chunks != 0 &&
      shape.chunks * schedule.num_ranks() != schedule.num_stages())
    return refuse("chunks", shape.chunks, "stages", schedule.num_stages());
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const Generator& generator : kGenerators) {
    names.emplace_back(generator.name);
  }
  return names;
}

bool IsScheduleName(absl::string_view name) {
  return FindGenerator(name) != nullptr;
}

absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape) {
  const Generator* generator = FindGenerator(name);
  if (generator == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule=", name, ": must be one of ",
                     absl::StrJoin(ScheduleNames(), ", ")));
  RETURN_IF_ERROR(CheckShape(shape));
  const int chunks =
      shape.chunks == 0 ? generator->default_chunks : shape.chunks;
  RETURN_IF_ERROR(CheckChunks(*generator, chunks));
  RETURN_IF_ERROR(CheckSize(shape, chunks));
  Schedule schedule =
      generator->make(shape.num_ranks, shape.num_micro_batches, chunks);
  schedule.name = std::string(name);
  return schedule;
}

absl::StatusOr<Schedule> OpenSchedule(const std::string& name,
                                      const ScheduleShape& shape) {
  if (IsScheduleName(name)) return MakeSchedule(name, shape);
  const absl::StatusOr<Schedule> schedule = ReadScheduleCsv(name);
  if (absl::IsNotFound(schedule.status()))
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule=", name, ": neither one of ",
                     absl::StrJoin(ScheduleNames(), ", "), " nor a file"));
  if (!schedule.ok()) return schedule.status();
  RETURN_IF_ERROR(CheckFileFits(*schedule, shape));
  if (const auto facts = Validate(*schedule); !facts.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", facts.status().message()));
  return ComputationOf(*schedule);
}

Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches) {
  Schedule schedule;
  schedule.name = "forward";
  schedule.num_micro_batches = num_micro_batches;
  schedule.rank_of_stage = std::move(rank_of_stage);
  schedule.actions.resize(num_ranks);
  const Values values(schedule);
  // A rank has time for `chunks` stages between two micro-batches; what a stage
  // makes at an even time travels at the odd one after it. At one time, the
  // last stage comes first.
  const int num_stages = schedule.num_stages();
  const int chunks = (num_stages + num_ranks - 1) / num_ranks;
  std::multimap<std::pair<int, int>, Action> in_order;  // by time and -stage
  for (int i = 0; i < num_micro_batches; ++i) {
    for (int stage = 0; stage < num_stages; ++stage) {
      const int time = 2 * (i * chunks + stage);
      const Action forward = {stage, i, ActionKind::kForward};
      in_order.insert({{time, -stage}, forward});
      const size_t value = values.MadeBy(forward);
      if (value == Values::kNone || !values.CrossesRanks(value)) continue;
      in_order.insert({{time + 1, -stage}, values.SendOf(value)});
      in_order.insert({{time + 1, -stage}, values.ReceiveOf(value)});
    }
  }
  for (const auto& [place, action] : in_order)
    schedule.actions[schedule.rank_of_stage[action.stage]].push_back(action);
  return schedule;
}

}  // namespace rankwise
