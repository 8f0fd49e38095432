// What a copy between the devices of neighbouring ranks of a pipeline costs,
// where all of them are in one process.
#ifndef RANKWISE_PARALLEL_PIPELINE_MEASURE_COPIES_H_
#define RANKWISE_PARALLEL_PIPELINE_MEASURE_COPIES_H_

#include <cstdint>
#include <vector>

#include "c10/core/Device.h"
#include "parallel/pipeline/simulate.h"

namespace rankwise {

// As MeasureLink: alpha + bytes * beta through the median times of copies of 4
// and of `message_bytes` bytes, from the device of rank i to that of rank i +
// 1; the mean over all of these pairs. Times are the devices'; the host waits.
LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_MEASURE_COPIES_H_
