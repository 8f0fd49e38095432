// What reading and analysing the records of a large study takes.
//   bazel run //analysis/answer:summary_benchmark

#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/answer/answer.h"
#include "analysis/runs/made_study_for_test.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

double PeakMiB() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// range(0) records in 12 files. `Time` is the wall clock's, `CPU` that of all
// threads.
void SummariseStudy(benchmark::State& state) {
  const std::string dir = "summary_benchmark." + std::to_string(getpid());
  std::filesystem::create_directory(dir);
  if (!WriteMadeStudy(dir, {.records = state.range(0)}).ok()) {
    state.SkipWithError("cannot write the records");
  }
  for (auto _ : state) {
    absl::StatusOr<std::vector<RunTrace>> runs = LoadRuns(dir);
    if (!runs.ok() || Analyze(*std::move(runs), {})->cells.size() != 4) {
      state.SkipWithError("the study was not summarised");
      break;
    }
  }
  state.counters["peak_MiB"] = PeakMiB();
  std::filesystem::remove_all(dir);
}
BENCHMARK(SummariseStudy)
    ->Arg(1'000'000)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace rankwise
