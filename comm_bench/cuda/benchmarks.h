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
  int64_t bytes = 0;  // moved per Run, as the limit counts them; may be 0
  Limit limit;
};

using MakeMeasurement = std::function<std::unique_ptr<Measurement>()>;

// Executes one checked, uncounted Run, then the benchmark's iterations with the
// measurement's own time (UseManualTime), then checks their result. If bytes
// are moved, counts bytes_per_second and, if the limit is known,
// limit_bytes_per_second and "% of limit"; the limit's name is the label.
// Returns false after a failure or exception; the benchmark reports the reason.
bool RunMeasurement(benchmark::State& state, const MakeMeasurement& make,
                    const Traffic& traffic);

// Registers every measurement of the first visible GPU, and of the links
// between all GPUs, with Google Benchmark, and adds the properties of the GPU
// and the build to its context. `*failed`, which must outlive the benchmarks,
// becomes true if one fails. NotFound, with the reason, without a GPU or in a
// build without CUDA.
absl::Status RegisterMeasurements(bool* failed);

// Returns names and values: the GPU, its memory and limits, the driver, CUDA
// and nvcc. Unknown values are "unknown".
std::vector<std::pair<std::string, std::string>> GpuContext(
    const GpuFacts& gpu);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_BENCHMARKS_H_
