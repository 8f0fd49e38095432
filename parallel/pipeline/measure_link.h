// What a message between neighbouring ranks of a pipeline costs.
#ifndef RANKWISE_PARALLEL_PIPELINE_MEASURE_LINK_H_
#define RANKWISE_PARALLEL_PIPELINE_MEASURE_LINK_H_

#include <cstdint>
#include <vector>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/pipeline/simulate.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// Times messages to and fro between ranks i and i + 1 of the pipeline, of 4
// bytes and of `message_bytes` (an activation's size, of which at most 4 MiB
// are used), and fits alpha + bytes * beta through the medians of the half
// round trips. Returns the mean over all pairs of neighbours, the same on every
// rank: the fill of a pipeline crosses each of them once. Takes about 30 round
// trips per pair, two pairs after another. Zero for one rank.
//
// Called by all ranks of the pipeline, with arguments as PipelineExecutor's.
// Throws what a failed send or receive throws.
LinkCosts MeasureLink(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const std::vector<int>& ranks, int rank,
                      c10::Device device, int64_t message_bytes);

// The line through the two points; neither cost is below zero.
LinkCosts FitLink(int64_t small_bytes, double small_seconds,
                  int64_t large_bytes, double large_seconds);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_MEASURE_LINK_H_
