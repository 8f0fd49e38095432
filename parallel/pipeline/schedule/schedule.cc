#include "parallel/pipeline/schedule/schedule.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "parallel/pipeline/schedule/builders.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int kAnyChunks = 0;

struct Generator {
  absl::string_view name;
  int default_chunks;
  int only_chunks;  // or kAnyChunks
  // nullptr if the schedule depends on costs.
  Schedule (*make)(int p, int m, int v);
  int least_per_rank = 0;  // micro-batches per rank
};

constexpr Generator kGenerators[] = {
    {"naive", 1, 1, Naive},
    {"gpipe", 1, 1, GPipe},
    {"1f1b", 1, 1, OneForwardOneBackward},
    {"interleaved_1f1b", 2, kAnyChunks, InterleavedOneForwardOneBackward},
    {"zero_bubble_h1", 1, 1, ZeroBubbleH1},
    {"zero_bubble_h2", 1, 1, ZeroBubbleH2},
    {"zbv", 2, 2, ZeroBubbleV},
    {"dualpipev", 2, 2, DualPipeV, 2},
    {"zero_bubble_auto", 1, 1, nullptr},
};

// Simulating a longer schedule takes gigabytes and tens of seconds.
constexpr int64_t kMostMicroBatchesOfStages = int64_t{1} << 24;

// A schedule's name and its optional limit: "zero_bubble_auto:6".
struct Request {
  const Generator* generator = nullptr;  // nullptr if not a name
  int max_activations = 0;               // 0 if not given
};

Request ParseScheduleName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, ':');
  for (const Generator& generator : kGenerators) {
    if (generator.name != parts[0]) continue;
    Request request = {&generator};
    const bool limited = generator.make == nullptr && parts.size() == 2 &&
                         absl::SimpleAtoi(parts[1], &request.max_activations) &&
                         request.max_activations >= 1;
    if (limited || parts.size() == 1) return request;
  }
  return {};
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

absl::Status CheckMicroBatches(const Generator& generator,
                               const ScheduleShape& shape) {
  const int64_t m = shape.num_micro_batches;
  const int64_t least = int64_t{generator.least_per_rank} * shape.num_ranks;
  if (m >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--microbatches=", m, ": --schedule=", generator.name, " needs ",
      generator.least_per_rank, " micro-batches per rank, ", least,
      " for --pp=", shape.num_ranks,
      "; raise --microbatches, or take --schedule=zbv"));
}

absl::Status CheckSize(const ScheduleShape& shape, int chunks) {
  // Schedules with chunks are built from a whole number of rounds.
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

absl::StatusOr<Schedule> PlanZeroBubble(const ScheduleShape& shape,
                                        int max_activations,
                                        SimulationCosts costs) {
  if (costs.stages.empty()) costs.stages.emplace_back();
  RETURN_IF_ERROR(CheckCosts(costs, shape.num_ranks));
  return ZeroBubbleAuto(
      shape.num_ranks, shape.num_micro_batches,
      max_activations == 0 ? shape.num_ranks : max_activations, costs);
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
  return ParseScheduleName(name).generator != nullptr;
}

int DefaultChunks(absl::string_view name) {
  const Generator* const generator = ParseScheduleName(name).generator;
  return generator == nullptr ? 1 : generator->default_chunks;
}

absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape,
                                      const SimulationCosts& costs) {
  const Request request = ParseScheduleName(name);
  if (request.generator == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule=", name, ": must be one of ",
                     absl::StrJoin(ScheduleNames(), ", ")));
  const Generator& generator = *request.generator;
  RETURN_IF_ERROR(CheckShape(shape));
  const int chunks =
      shape.chunks == 0 ? generator.default_chunks : shape.chunks;
  RETURN_IF_ERROR(CheckChunks(generator, chunks));
  RETURN_IF_ERROR(CheckSize(shape, chunks));
  RETURN_IF_ERROR(CheckMicroBatches(generator, shape));
  ASSIGN_OR_RETURN(
      Schedule schedule,
      generator.make == nullptr
          ? PlanZeroBubble(shape, request.max_activations, costs)
          : generator.make(shape.num_ranks, shape.num_micro_batches, chunks));
  schedule.name = std::string(name);
  return schedule;
}

absl::StatusOr<Schedule> OpenSchedule(const std::string& name,
                                      const ScheduleShape& shape,
                                      const SimulationCosts& costs) {
  if (IsScheduleName(name)) return MakeSchedule(name, shape, costs);
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
  // A rank has time for `chunks` stages between two micro-batches; a value made
  // at an even time is sent at the following odd one. Later stages come first
  // at equal times.
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
