// A Measurement as a benchmark of Google Benchmark.
#ifndef RANKWISE_COMM_BENCH_CUDA_RUN_MEASUREMENT_H_
#define RANKWISE_COMM_BENCH_CUDA_RUN_MEASUREMENT_H_

#include <cstdint>

#include "benchmark/benchmark.h"
#include "comm_bench/cuda/limit.h"
#include "comm_bench/cuda/measurement.h"

namespace rankwise::micro {

struct Traffic {
  int64_t bytes = 0;  // that one Run moves, as the limit counts them; 0: none
  Limit limit;
};

// One checked Run that does not count, then the benchmark's iterations, by the
// measurement's own time (UseManualTime), then a check of what they left.
// Counters where bytes move: bytes_per_second, and where the limit is known
// limit_bytes_per_second and "% of limit"; the limit's name is the label.
// False where something failed; the benchmark says what.
bool RunMeasurement(benchmark::State& state, Measurement& measurement,
                    const Traffic& traffic);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_RUN_MEASUREMENT_H_
