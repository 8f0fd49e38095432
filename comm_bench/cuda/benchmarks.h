// The benchmarks of the binary `micro`.
#ifndef RANKWISE_COMM_BENCH_CUDA_BENCHMARKS_H_
#define RANKWISE_COMM_BENCH_CUDA_BENCHMARKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "comm_bench/cuda/limit.h"
#include "comm_bench/cuda/measurements.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {

struct Traffic {
  int64_t bytes = 0;  // that one Run moves, as the limit counts them; 0: none
  Limit limit;
};

using MakeMeasurement = std::function<std::unique_ptr<Measurement>()>;

// One checked Run that does not count, then the benchmark's iterations, by the
// measurement's own time (UseManualTime), then a check of what they left.
// Counters where bytes move: bytes_per_second, and where the limit is known
// limit_bytes_per_second and "% of limit"; the limit's name is the label.
// False where something failed or threw; the benchmark says what.
bool RunMeasurement(benchmark::State& state, const MakeMeasurement& make,
                    const Traffic& traffic);

// Registers every measurement of the first visible GPU, and of the links
// between all of them, with Google Benchmark, and adds what the GPU and the
// build are to its context. `*failed`, which must outlive the benchmarks,
// becomes true when one fails. NotFound, with the reason, where there is no GPU
// or the build is without CUDA.
absl::Status RegisterMeasurements(bool* failed);

// Names and values: the GPU, its memory and limits, the driver, CUDA and nvcc.
// What is not known is said to be "unknown".
std::vector<std::pair<std::string, std::string>> GpuContext(
    const GpuFacts& gpu);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_BENCHMARKS_H_
