// What a message between neighbouring ranks of a pipeline costs.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_MEASURE_LINK_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_MEASURE_LINK_H_

#include <cstdint>
#include <vector>

#include "c10/core/Device.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {

class Group;

// Times messages to and fro between ranks i and i + 1 of the pipeline, of 4
// bytes and of `message_bytes` (an activation's size, of which at most 4 MiB
// are used), and fits alpha + bytes * beta through the medians of the half
// round trips. Returns the mean over all pairs of neighbours, the same on every
// rank: the fill of a pipeline crosses each of them once. Takes about 30 round
// trips per pair, two pairs after another. Zero for one rank.
//
// Called by all ranks of the pipeline. Throws what a failed send or receive
// throws.
LinkCosts MeasureLink(const Group& pipeline, c10::Device device,
                      int64_t message_bytes);

// The same where one process runs all ranks, by copies from the device of rank
// i to that of rank i + 1. Times are the devices'; the host waits.
LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes);

// The line through the two points; neither cost is below zero.
LinkCosts FitLink(int64_t small_bytes, double small_seconds,
                  int64_t large_bytes, double large_seconds);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_MEASURE_LINK_H_
