// Times the passes over a schedule; the largest is 1F1B on 1024 ranks with 4096
// micro-batches.
#include <benchmark/benchmark.h>

#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

Schedule OfSize(const benchmark::State& state) {
  return MakeSchedule("1f1b",
                      {.num_ranks = static_cast<int>(state.range(0)),
                       .num_micro_batches = static_cast<int>(state.range(1))})
      .value();
}

void CountActions(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * 2 * state.range(0) *
                          state.range(1));
}

void BM_MakeSchedule(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(OfSize(state));
  }
  CountActions(state);
}

void BM_Validate(benchmark::State& state) {
  const Schedule schedule = OfSize(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(Validate(schedule).value());
  }
  CountActions(state);
}

// Includes validation.
void BM_Simulate(benchmark::State& state) {
  const Schedule schedule = OfSize(state);
  const SimulationCosts costs = {.stages = {StageCosts{}}, .link = {}};
  for (auto _ : state) {
    benchmark::DoNotOptimize(Simulate(schedule, costs).value());
  }
  CountActions(state);
}

#define SIZES              \
  Args({8, 32})            \
      ->Args({64, 256})    \
      ->Args({1024, 4096}) \
      ->Unit(benchmark::kMillisecond)

BENCHMARK(BM_MakeSchedule)->SIZES;
BENCHMARK(BM_Validate)->SIZES;
BENCHMARK(BM_Simulate)->SIZES;

}  // namespace
}  // namespace rankwise
