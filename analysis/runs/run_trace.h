// Runs as analysis sees them: the records of all ranks of one run together.
#ifndef RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_
#define RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "records/record.h"

namespace rankwise {

struct RankTrace {
  RunRecord run;
  std::vector<StepRecord> steps = {};  // in the order they were taken
  // In the order they were written.
  std::vector<ScheduleRecord> schedules = {};
  std::vector<EvalRecord> evals = {};
  std::vector<CollectiveRecord> collectives = {};
  std::vector<TrafficRecord> traffic = {};
  std::vector<TimelineRecord> timelines = {};
  std::optional<MemoryRecord> memory = {};
  std::optional<EnvironmentRecord> environment = {};
};

struct RunTrace {
  std::string source;            // the file, for messages
  std::vector<RankTrace> ranks;  // by rank; complete only if CheckRun says so
  // Lines of `source` that were passed over; of its first run, for all of it.
  std::vector<int64_t> torn_lines = {};
};

// Reads every run of one record file. Records belong to the latest run record
// of their rank; run records with one run_id are one run. Torn lines are
// passed over: TornLines names them. Fails as VisitRecords does, and where a
// rank opens one run twice or the ranks of a run disagree about the world size.
absl::StatusOr<std::vector<RunTrace>> LoadRuns(const std::string& path);

// The record files that `path` names: itself where it is a file, and of a
// folder its *.jsonl in the order of their names. NotFound where there is no
// `path`, or no such file in it.
absl::StatusOr<std::vector<std::string>> RecordFilesIn(const std::string& path);

// The runs of every file as LoadRuns reads it, in the order of `files`; reads
// several at a time, a thread per core. Where files fail, the error is that of
// the first of them in this order.
absl::StatusOr<std::vector<RunTrace>> LoadRunsFrom(
    absl::Span<const std::string> files);

// "runs/a.jsonl:17: a torn line, ...", for every line that was passed over.
std::vector<std::string> TornLines(absl::Span<const RunTrace> runs);

// Fails, saying why, unless the run has usualy rank, the ranks recorded the
// same steps, and their schedule records, if any, agree on the replicas.
absl::Status CheckRun(const RunTrace& run);

// How many ranks take part in the same examples and report them all: those of
// one pipeline; 1 without pipelines. Expects a run that CheckRun accepts.
int64_t RanksPerReplica(const RunTrace& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_
