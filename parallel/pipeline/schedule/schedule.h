// Schedules by name: the papers' generators, or a CSV file.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

struct ScheduleShape {
  int num_ranks = 1;          // p
  int num_micro_batches = 1;  // m
  int chunks = 0;  // v, stages per rank; 0: the schedule's own (2 for
                   // interleaved_1f1b and zbv, 1 for the others)
};

// naive, gpipe, 1f1b, interleaved_1f1b, zero_bubble_h1, zbv.
std::vector<std::string> ScheduleNames();
// Whether `name` is one of them, and not a file's path.
bool IsScheduleName(absl::string_view name);

// Computation only. Every schedule takes every number of micro-batches, and
// each stage does its F, its B or I, and its W in ascending order of
// micro-batch, so that gradients add up in the order of a single process.
// InvalidArgument naming the known schedules, or saying what of the shape the
// schedule cannot do.
absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape);

// MakeSchedule if `name` is one of ScheduleNames(), else the CSV file of that
// path (schedule_csv.h), validated and without its communication. The file must
// fit `shape`: num_ranks, num_micro_batches and, unless 0, chunks.
absl::StatusOr<Schedule> OpenSchedule(const std::string& name,
                                      const ScheduleShape& shape);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
