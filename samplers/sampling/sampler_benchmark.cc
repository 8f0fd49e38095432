// What an epoch's indices cost: bazel run //samplers/sampling:sampler_benchmark

#include <benchmark/benchmark.h>

#include <memory>

#include "samplers/sampling/samplers.h"

namespace rankwise {
namespace {

// Arguments: dataset size, world size, shuffle.
void Indices(benchmark::State& state) {
  const std::unique_ptr<DistributedSampler> sampler =
      *DistributedSampler::Create(
          state.range(0),
          {.num_replicas = state.range(1), .shuffle = state.range(2) != 0});
  int64_t epoch = 0;
  for (auto _ : state) {
    sampler->set_epoch(epoch++);
    benchmark::DoNotOptimize(sampler->Indices());
  }
  state.SetItemsProcessed(state.iterations() * sampler->size());
}

BENCHMARK(Indices)
    ->ArgNames({"size", "world_size", "shuffle"})
    ->ArgsProduct({{50000, 1000000}, {1, 8}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rankwise
