// Schedules by name: the papers' (schedule.cc names each one's), or a CSV file;
// their form in files; a validation that finds what would go wrong; and where
// to cut a model's layers into stages.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
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
// path, validated and without its communication. The file must fit those of
// `shape`'s numbers that are not 0.
absl::StatusOr<Schedule> OpenSchedule(const std::string& name,
                                      const ScheduleShape& shape);

// The schedule of an evaluation: F of all micro-batches through all stages,
// with sends and receives. A stage computes as soon as it can, and a rank with
// several stages takes turns among them, so that micro-batches follow each
// other for any placement. All ranks' lists agree with one order of all actions
// and messages: even where every send waits for its receive, nothing deadlocks.
Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches);

// Files have the format of torch.distributed.pipelining: one row per rank, one
// cell per action in the notation of ToString(Action); empty cells, which that
// library writes for idle time slots, mean nothing.
//
// `path` is the schedule's name and stands in messages. InvalidArgument names
// the file, row and column (from 1) of a cell that is no action, or of a stage
// that another rank has too. Does not validate: see Validate.
absl::StatusOr<Schedule> ParseScheduleCsv(const std::string& path,
                                          absl::string_view text);

absl::StatusOr<Schedule> ReadScheduleCsv(const std::string& path);

// Communication is left out: torch.distributed.pipelining and AddCommunication
// add their own.
std::string ToCsv(const Schedule& schedule);

// Replaces the file. The error names it.
absl::Status WriteScheduleCsv(const Schedule& schedule,
                              const std::string& path);

struct ScheduleFacts {
  // Per rank: the most micro-batches whose forward is done and whose weight
  // gradient is not, summed over the rank's stages, in units of one stage's
  // activations; divide by the stages per rank for whole micro-batches.
  std::vector<int> peak_activations;
};

// InvalidArgument that names the rank, its position in the list and the action:
// an action that is missing, doubled, of an unknown stage or micro-batch, on
// another rank than the stage's other actions, before what it needs on its own
// rank; or, for a deadlock, who waits for what in a cycle. Accepts schedules
// with and without communication.
absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule);

// The first layer of every stage but the first: {2, 5} cuts 8 layers into
// [0, 2), [2, 5), [5, 8).
using Cuts = std::vector<size_t>;

// Contiguous, none empty, with the least possible cost of the costliest stage;
// exact, by dynamic programming. Of equally good cuts the later one.
// InvalidArgument with both numbers for more stages than layers, or a cost that
// is negative or not finite.
absl::StatusOr<Cuts> BalanceLayers(absl::Span<const double> layer_costs,
                                   size_t num_stages);

// "2,5": for a model of `num_layers` into `num_stages`. InvalidArgument that
// names the cut: outside the model, not ascending, not a number, too few or too
// many.
absl::StatusOr<Cuts> ParseCuts(absl::string_view text, size_t num_layers,
                               size_t num_stages);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
