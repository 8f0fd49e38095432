// Schedules in files, in the format of torch.distributed.pipelining: one row
// per rank, one cell per action in the notation of ToString(Action); empty
// cells, which that library writes for idle time slots, mean nothing.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_CSV_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_CSV_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

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

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_CSV_H_
