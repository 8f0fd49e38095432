// Runs of comm_bench made up with a known truth.

#ifndef ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_
#define ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/cost_model/samples_for_test.h"
#include "analysis/run_trace.h"

namespace rankwise {

struct BenchRunForTest {
  std::vector<std::string> collectives = {"all_reduce"};
  std::string backend = "gloo";
  int64_t world_size = 2;
  int64_t in_flight = 1;
  std::vector<int64_t> bytes = {8,     64,     512,     4096,
                                32768, 262144, 2097152, 16777216};
  std::function<double(double bytes)> seconds = [](double bytes) {
    return 1e-4 + 1e-9 * bytes;
  };
  NoiseForTest noise = {.calls = 20, .spread = 0, .tail = 0};
  uint64_t seed = 0;
};

// A row per collective and size. Rank 1 is the slowest, the others take half as
// long; ping_pong has two trips. Iterations other than the last are
// `seconds(bytes)` with noise for each call; the last is 100 times as long, and
// late by rank 0's record alone.
RunTrace MakeBenchRun(const BenchRunForTest& config);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_
