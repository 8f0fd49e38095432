// What the executor adds to an action, beside the stage's own computation.
//   bazel run //parallel/pipeline:executor_benchmark
// Stages of two layers of 6 x 6, 16 micro-batches of 3 rows, one thread per
// rank. BM_OneRank less BM_StageAlone is the executor; two ranks are threads
// over Gloo on this machine, whose time is that of the messages. per_action:
// seconds per F, B, I or W of rank 0.
#include <algorithm>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "benchmark/benchmark.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/measure_link.h"
#include "parallel/pipeline/test_pipeline.h"
#include "parallel/pipeline/timeline.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

constexpr int kMicroBatches = 16;
constexpr int kSteps = 50;  // per iteration

void SetPerAction(benchmark::State& state, double actions) {
  state.counters["per_action"] = benchmark::Counter(
      actions, benchmark::Counter::kIsIterationInvariantRate |
                   benchmark::Counter::kInvert);
}

void BM_StageAlone(benchmark::State& state) {
  at::set_num_threads(1);
  TestStage stage(TestLayers::kLinear, 0, 1, kMicroBatches);
  for (auto _ : state) {
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      const at::Tensor loss = stage.Forward(micro_batch, at::Tensor());
      torch::autograd::backward({loss}, {at::ones_like(loss)});
    }
  }
  SetPerAction(state, 2 * kMicroBatches);
}
BENCHMARK(BM_StageAlone)->Unit(benchmark::kMicrosecond);

double ComputeActions(const Schedule& schedule) {
  const std::vector<Action>& actions = schedule.actions[0];
  return static_cast<double>(
      std::count_if(actions.begin(), actions.end(),
                    [](const Action& a) { return IsCompute(a.kind); }));
}

void BM_OneRank(benchmark::State& state, const std::string& name) {
  at::set_num_threads(1);
  const Schedule schedule = TestSchedule(name, {1, kMicroBatches, 0}).at(0);
  const TestStages stages(TestLayers::kLinear, schedule, 0);
  PipelineExecutor executor(nullptr, {0}, 0, stages.pointers(), {});
  for (auto _ : state) benchmark::DoNotOptimize(executor.Run(schedule));
  SetPerAction(state, ComputeActions(schedule));
}
BENCHMARK_CAPTURE(BM_OneRank, gpipe, "gpipe")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_OneRank, zero_bubble_h1, "zero_bubble_h1")
    ->Unit(benchmark::kMicrosecond);

void BM_TwoRanks(benchmark::State& state, const std::string& name) {
  const Schedule schedule = TestSchedule(name, {2, kMicroBatches, 0}).at(0);
  for (auto _ : state) {
    OnRanks(2, [&](const Group& group, int rank) {
      const TestStages stages(TestLayers::kLinear, schedule, rank);
      PipelineExecutor executor(group, {0, 1}, rank, stages.pointers(), {});
      executor.Run(schedule);
      double seconds = 0;
      for (int step = 0; step < kSteps; ++step) {
        const ExecutorStep result = WaitFor(executor.Run(schedule));
        seconds += result.end_seconds - result.start_seconds;
      }
      if (rank == 0) state.SetIterationTime(seconds / kSteps);
    });
  }
  SetPerAction(state, ComputeActions(schedule));
}
void Timed(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Iterations(5)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(BM_TwoRanks, one_f_one_b, "1f1b")->Apply(Timed);
BENCHMARK_CAPTURE(BM_TwoRanks, interleaved_1f1b, "interleaved_1f1b")
    ->Apply(Timed);
BENCHMARK_CAPTURE(BM_TwoRanks, zero_bubble_h1, "zero_bubble_h1")->Apply(Timed);

// Two ranks: how long measuring takes, and what it finds.
void BM_MeasureLink(benchmark::State& state) {
  for (auto _ : state) {
    OnRanks(2, [&](const Group& group, int rank) {
      const double start = Now();
      const LinkCosts link =
          MeasureLink(group, {0, 1}, rank, c10::kCPU, state.range(0));
      if (rank != 0) return;
      state.SetIterationTime(Now() - start);
      state.counters["alpha_seconds"] = link.alpha_seconds;
      state.counters["beta_seconds_per_byte"] = link.beta_seconds_per_byte;
    });
  }
}
BENCHMARK(BM_MeasureLink)
    ->ArgName("message_bytes")
    ->Arg(1 << 16)
    ->Arg(4 << 20)
    ->Apply(Timed);

}  // namespace
}  // namespace rankwise
