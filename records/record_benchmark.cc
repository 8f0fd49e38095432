// Time per training step for writing its records, and for reading them.
//   bazel run -c opt //records:record_benchmark

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "records/record.h"
#include "records/record_json.h"
#include "records/record_writer.h"

namespace rankwise {
namespace {

StepRecord ExampleStep() {
  return {1,           782,         5,           2.302585092994046,
          0.071234567, 0.000012345, 0.021234567, 0.041234567,
          0.004123456, 0.009123456, 64};
}

void FormatStep(benchmark::State& state) {
  const StepRecord step = ExampleStep();
  std::string line;
  for (auto _ : state) {
    line.clear();
    AppendJsonLine(step, &line);
    benchmark::DoNotOptimize(line.data());
  }
}
BENCHMARK(FormatStep);

// A row of the communication benchmark with range(0) iterations.
void FormatCollective(benchmark::State& state) {
  CollectiveRecord row;
  for (int64_t i = 0; i < state.range(0); ++i) {
    row.seconds.push_back(4.5e-5 + 1.234567e-9 * static_cast<double>(i));
    row.start_seconds.push_back(6.789e-5 * static_cast<double>(i));
  }
  const Record record = row;
  std::string line;
  for (auto _ : state) {
    line.clear();
    AppendJsonLine(record, &line);
    benchmark::DoNotOptimize(line.data());
  }
}
BENCHMARK(FormatCollective)->Arg(1000);

// Time per step, written to a file in batches of range(0) steps.
void WriteSteps(benchmark::State& state) {
  const std::string path =
      "record_benchmark." + std::to_string(state.range(0)) + ".jsonl";
  auto writer = RecordWriter::Open(path);
  if (!writer.ok()) return state.SkipWithError("cannot open the file");
  const std::vector<StepRecord> steps(state.range(0), ExampleStep());
  while (state.KeepRunningBatch(state.range(0))) {
    benchmark::DoNotOptimize((*writer)->Write(steps).ok());
  }
  std::remove(path.c_str());
}
BENCHMARK(WriteSteps)->Arg(1)->Arg(100);

void ParseStep(benchmark::State& state) {
  const std::string line = ToJsonLine(ExampleStep());
  for (auto _ : state) benchmark::DoNotOptimize(ParseRecord(line).ok());
}
BENCHMARK(ParseStep);

}  // namespace
}  // namespace rankwise
