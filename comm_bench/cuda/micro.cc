// Measures one GPU, its memory and its links with our own kernels:
//
//   bazel run --config=cuda //comm_bench/cuda:micro
//
// docs/micro_benchmarks.md defines the figures.

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "comm_bench/cuda/benchmarks.h"
#include "records/command_line.h"
#include "records/standard_output.h"

namespace rankwise::micro {
namespace {

int Main(int argc, char** argv) {
  IgnoreSigpipe();
  CheckStandardOutputAtExit();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return kBadUsage;
  bool failed = false;
  const absl::Status registered = RegisterMeasurements(&failed);
  if (!registered.ok()) {
    std::fprintf(stderr, "micro: error: %s\n",
                 std::string(registered.message()).c_str());
    return kBadUsage;
  }
  const size_t ran = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return failed || ran == 0 ? kFailed : 0;
}

}  // namespace
}  // namespace rankwise::micro

int main(int argc, char** argv) { return rankwise::micro::Main(argc, argv); }
