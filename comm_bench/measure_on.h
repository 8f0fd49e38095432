// What the device decides of how it is measured.
#ifndef RANKWISE_COMM_BENCH_MEASURE_ON_H_
#define RANKWISE_COMM_BENCH_MEASURE_ON_H_

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/bench_config.h"
#include "comm_bench/measure.h"

namespace rankwise::comm_bench {

// config.measure, completed for a rank on `device`: whether events time it, and
// whether NCCL is asked for its choices. InvalidArgument for what only a GPU
// can do, and for --timing=events with an --across that needs the ends of all
// ranks on one clock; each says what to do.
absl::StatusOr<MeasureConfig> MeasureOn(c10::Device device,
                                        const BenchConfig& config);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MEASURE_ON_H_
