// A pipeline's timeline as a record.
#ifndef RANKWISE_TRAINERS_TIMELINE_RECORD_H_
#define RANKWISE_TRAINERS_TIMELINE_RECORD_H_

#include <cstdint>
#include <vector>

#include "parallel/pipeline/timeline.h"
#include "records/record.h"

namespace rankwise {

// The computation among `spans`, which are in order of start, told since
// `origin_seconds`. Leaves rank, step, schedule and origin to the caller.
TimelineRecord ToTimelineRecord(const std::vector<Span>& spans,
                                double origin_seconds);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_TIMELINE_RECORD_H_
