// Waits for what a device has been given to do.
#ifndef RANKWISE_COMM_BENCH_TIMING_DEVICE_SYNC_H_
#define RANKWISE_COMM_BENCH_TIMING_DEVICE_SYNC_H_

#include "c10/core/Device.h"

namespace rankwise::comm_bench {

// Returns when all streams of `device` are idle; at once on the CPU. What a
// Work's wait does not do on CUDA: that only orders streams.
void SynchronizeDevice(c10::Device device);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_DEVICE_SYNC_H_
