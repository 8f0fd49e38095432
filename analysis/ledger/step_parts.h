// The parts of every step of every rank, before they are summed up.

#ifndef ANALYSIS_LEDGER_STEP_PARTS_H_
#define ANALYSIS_LEDGER_STEP_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/ledger/ledger.h"
#include "analysis/run_trace.h"
#include "records/record.h"

namespace rankwise {

// `schedule` is null outside pipelines. What a step of a pipeline spends in its
// schedule neither computing nor waiting is the handing over of messages to the
// transport: the executor does nothing else.
LedgerParts PartsOfStep(const StepRecord& step, const ScheduleRecord* schedule);

// A rank, or a stage of a process that runs several.
struct Place {
  int64_t rank = 0;
  int64_t stage = -1;                   // as in RankLedger
  std::vector<LedgerParts> steps = {};  // after warm-up, in order
  double optimizer_seconds = 0;         // sum over them
  double captured_seconds = 0;          // likewise
  bool separates_bubble = true;         // as in Ledger
};

// The places of a run, by rank and stage, all with as many steps: those from
// the `first` on, counted from 0. Expects a run that CheckMeasurable accepts.
// Fails, naming the file, where a step lacks the schedule records that the
// rank's first one has, or has others.
absl::StatusOr<std::vector<Place>> ReadPlaces(const RunTrace& run,
                                              size_t first);

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_STEP_PARTS_H_
