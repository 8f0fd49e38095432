// Times the steps of a batch: indices, gathering, transformation, loading.
//   bazel run //samplers/loader:loader_benchmark

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <vector>

#include "samplers/datasets/dataset.h"
#include "samplers/loader/data_loader.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {
namespace {

constexpr int64_t kBatchSize = 64;

Batch SomeImages() {
  std::vector<int64_t> indices(kBatchSize);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return (*OpenDataset({.train_size = 50000}, Split::kTrain))->Gather(indices);
}

// Times an epoch's indices.
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

// Times gathering 64 generated examples: uint8 images, 1024 features with as
// many targets, 128 tokens.
void Gather(benchmark::State& state, const char* name) {
  DatasetConfig config;
  config.name = name;
  const std::unique_ptr<Dataset> dataset = *OpenDataset(config, Split::kTrain);
  std::vector<int64_t> indices(kBatchSize);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  for (auto _ : state) benchmark::DoNotOptimize(dataset->Gather(indices));
  state.SetItemsProcessed(state.iterations() * kBatchSize);
}

BENCHMARK_CAPTURE(Gather, synthetic, "synthetic")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Gather, regression, "regression")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Gather, tokens, "tokens")->Unit(benchmark::kMicrosecond);

// Times uint8 to normalised fp32 by table.
void Transform(benchmark::State& state) {
  const Batch batch = SomeImages();
  for (auto _ : state) benchmark::DoNotOptimize(NormalizeImages(batch.data));
  state.SetItemsProcessed(state.iterations() * kBatchSize);
}

BENCHMARK(Transform)->Unit(benchmark::kMicrosecond);

// Times the same by ATen operators on one thread, for comparison.
void TransformByOperators(benchmark::State& state) {
  at::set_num_threads(1);
  const Batch batch = SomeImages();
  for (auto _ : state) {
    benchmark::DoNotOptimize(batch.data.to(at::kFloat)
                                 .div_(255)
                                 .sub_(0.5)
                                 .div_(0.5)
                                 .contiguous(at::MemoryFormat::ChannelsLast));
  }
  state.SetItemsProcessed(state.iterations() * kBatchSize);
}

BENCHMARK(TransformByOperators)->Unit(benchmark::kMicrosecond);

// Times an epoch of 200 batches through the loader, per batch.
void Loader(benchmark::State& state) {
  constexpr int64_t kSize = 200 * kBatchSize;
  const std::unique_ptr<Dataset> dataset =
      *OpenDataset({.train_size = kSize}, Split::kTrain);
  const std::unique_ptr<DistributedSampler> sampler =
      *DistributedSampler::Create(kSize, {});
  DataLoader loader(
      dataset.get(), sampler.get(),
      {.batch_size = kBatchSize, .workers = static_cast<int>(state.range(0))});
  int64_t epoch = 0;
  loader.StartEpoch(epoch);
  for (auto _ : state) {
    auto batch = loader.Next();
    if (!batch->has_value()) {
      loader.StartEpoch(++epoch);
      batch = loader.Next();
    }
    benchmark::DoNotOptimize(batch);
  }
  state.SetItemsProcessed(state.iterations() * kBatchSize);
}

BENCHMARK(Loader)->ArgName("workers")->DenseRange(0, 2)->UseRealTime()->Unit(
    benchmark::kMicrosecond);

}  // namespace
}  // namespace rankwise
