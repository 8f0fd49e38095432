// What the device decides of how it is measured.
#ifndef RANKWISE_COMM_BENCH_SWEEP_MEASURE_ON_H_
#define RANKWISE_COMM_BENCH_SWEEP_MEASURE_ON_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/sweep/bench_config.h"
#include "comm_bench/sweep/measure.h"

namespace rankwise::comm_bench {

// config.measure, completed for a rank on `device`: whether events time it, and
// whether NCCL is asked for its choices. InvalidArgument for what only a GPU
// can do, and for --timing=events with an --across that needs the ends of all
// ranks on one clock; each says what to do.
absl::StatusOr<MeasureConfig> MeasureOn(c10::Device device,
                                        const BenchConfig& config);

// InvalidArgument, by the flag's name, where the largest size cannot be
// measured: buffers of `ranks` ranks on one machine take more than its
// `memory_bytes`.
absl::Status CheckMemory(const BenchConfig& config, int ranks,
                         int64_t memory_bytes);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_MEASURE_ON_H_
