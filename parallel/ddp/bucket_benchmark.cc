// Measures the time of assigning gradients to buckets and counts the buckets.
//   bazel run //parallel/ddp:bucket_benchmark
// Arguments: parameter tensors of 100,000 floats each, bucket size in KiB.
#include <cstdint>
#include <vector>

#include "ATen/Functions.h"
#include "benchmark/benchmark.h"
#include "torch/csrc/distributed/c10d/reducer.hpp"

namespace rankwise {
namespace {

void BM_AssignBuckets(benchmark::State& state) {
  constexpr int64_t kElements = 100000;
  // Views of one buffer, since only the sizes matter.
  const at::Tensor storage = at::empty({kElements});
  std::vector<at::Tensor> parameters;
  for (int64_t i = 0; i < state.range(0); ++i) {
    parameters.push_back(storage.view({kElements}));
  }
  const auto cap_bytes = static_cast<size_t>(state.range(1)) << 10;
  size_t buckets = 0;
  for (auto _ : state) {
    auto [indices, limits] = c10d::compute_bucket_assignment_by_size(
        parameters, {c10d::kDefaultFirstBucketBytes, cap_bytes});
    buckets = indices.size();
    benchmark::DoNotOptimize(indices);
  }
  state.counters["buckets"] = static_cast<double>(buckets);
}
BENCHMARK(BM_AssignBuckets)
    ->ArgNames({"parameters", "cap_kib"})
    ->ArgsProduct({{10, 100, 1000}, {1, 1024, 25 * 1024}});

}  // namespace
}  // namespace rankwise
