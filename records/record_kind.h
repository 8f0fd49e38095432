// The `kind` that each record is written as, and the minor version of schema 1
// that added it.

#ifndef RECORDS_RECORD_KIND_H_
#define RECORDS_RECORD_KIND_H_

#include "records/record.h"

namespace rankwise {

struct RecordKind {
  const char* name;
  int since_minor;
};

constexpr RecordKind KindOf(const RunRecord&) { return {"run", 0}; }
constexpr RecordKind KindOf(const StepRecord&) { return {"step", 0}; }
constexpr RecordKind KindOf(const EpochRecord&) { return {"epoch", 0}; }
constexpr RecordKind KindOf(const EvalRecord&) { return {"eval", 0}; }
constexpr RecordKind KindOf(const CheckpointRecord&) {
  return {"checkpoint", 0};
}
constexpr RecordKind KindOf(const ScheduleRecord&) { return {"schedule", 1}; }
constexpr RecordKind KindOf(const CollectiveRecord&) {
  return {"collective", 2};
}
constexpr RecordKind KindOf(const OverlapRecord&) { return {"overlap", 2}; }
constexpr RecordKind KindOf(const TrafficRecord&) { return {"traffic", 2}; }
constexpr RecordKind KindOf(const EnvironmentRecord&) {
  return {"environment", 2};
}
constexpr RecordKind KindOf(const MemoryRecord&) { return {"memory", 3}; }
constexpr RecordKind KindOf(const TimelineRecord&) { return {"timeline", 3}; }

}  // namespace rankwise

#endif  // RECORDS_RECORD_KIND_H_
