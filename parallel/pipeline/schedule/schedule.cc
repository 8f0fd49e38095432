#include "parallel/pipeline/schedule/schedule.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/pipeline/schedule/builders.h"
#include "parallel/pipeline/schedule/schedule_csv.h"
#include "parallel/pipeline/schedule/validate.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int kAnyChunks = 0;

struct Generator {
  absl::string_view name;
  int default_chunks;
  int only_chunks;  // or kAnyChunks
  Schedule (*make)(int p, int m, int v);
};

constexpr Generator kGenerators[] = {
    {"naive", 1, 1, [](int p, int m, int) { return NaiveSchedule(p, m); }},
    {"gpipe", 1, 1, [](int p, int m, int) { return GPipeSchedule(p, m); }},
    {"1f1b", 1, 1,
     [](int p, int m, int) { return OneForwardOneBackward(p, m); }},
    {"interleaved_1f1b", 2, kAnyChunks, InterleavedOneForwardOneBackward},
    {"zero_bubble_h1", 1, 1,
     [](int p, int m, int) { return ZeroBubbleH1(p, m); }},
    {"zbv", 2, 2, [](int p, int m, int) { return ZeroBubbleV(p, m); }},
};

// Lists of more actions than this are a mistake: gigabytes.
constexpr int64_t kMostMicroBatchesOfStages = int64_t{1} << 26;

const Generator* FindGenerator(absl::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return &generator;
  }
  return nullptr;
}

absl::Status CheckAtLeastOne(absl::string_view flag, int value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": must be at least 1"));
}

absl::Status CheckShape(const ScheduleShape& shape) {
  RETURN_IF_ERROR(CheckAtLeastOne("pp", shape.num_ranks));
  RETURN_IF_ERROR(CheckAtLeastOne("microbatches", shape.num_micro_batches));
  if (shape.chunks == 0) return absl::OkStatus();
  return CheckAtLeastOne("chunks", shape.chunks);
}

absl::Status CheckChunks(const Generator& generator, int chunks) {
  if (generator.only_chunks == kAnyChunks || chunks == generator.only_chunks)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--chunks=", chunks, ": --schedule=", generator.name, " has ",
      generator.only_chunks, generator.only_chunks == 1 ? " stage" : " stages",
      " per rank; leave out --chunks",
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
  const auto refuse = [&](absl::string_view flag, int asked,
                          absl::string_view what, int has) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", asked, " does not fit --schedule=", schedule.name,
        ", which has ", has, " ", what));
  };
  if (schedule.num_ranks() != shape.num_ranks)
    return refuse("pp", shape.num_ranks, "rows, one per rank",
                  schedule.num_ranks());
  if (schedule.num_micro_batches != shape.num_micro_batches)
    return refuse("microbatches", shape.num_micro_batches, "micro-batches",
                  schedule.num_micro_batches);
  if (shape.chunks != 0 &&
      shape.chunks * shape.num_ranks != schedule.num_stages())
    return refuse("chunks", shape.chunks, "stages", schedule.num_stages());
  return absl::OkStatus();
}

absl::StatusOr<Schedule> OpenFile(const std::string& path,
                                  const ScheduleShape& shape) {
  const absl::StatusOr<Schedule> schedule = ReadScheduleCsv(path);
  if (absl::IsNotFound(schedule.status()))
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule=", path, ": neither one of ",
                     absl::StrJoin(ScheduleNames(), ", "), " nor a file"));
  if (!schedule.ok()) return schedule.status();
  RETURN_IF_ERROR(CheckFileFits(*schedule, shape));
  const absl::StatusOr<ScheduleFacts> valid = Validate(*schedule);
  if (!valid.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", valid.status().message()));
  return ComputationOf(*schedule);
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
  if (FindGenerator(name) != nullptr) return MakeSchedule(name, shape);
  RETURN_IF_ERROR(CheckShape(shape));
  return OpenFile(name, shape);
}

}  // namespace rankwise
