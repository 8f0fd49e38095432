// Synthetic calls and runs of comm_bench with known costs and realistic noise.
#ifndef RANKWISE_ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_
#define RANKWISE_ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "analysis/runs/run_trace.h"

namespace rankwise {

struct NoiseForTest {
  int calls = 40;
  double spread = 0.1;     // of the logarithm of a call's time
  double tail = 0.05;      // share of calls that take up to 11 times as long
  double deviation = 0;    // of a size's logarithm from the line
  double correlation = 0;  // lag-1, of the logarithms of successive calls
};

// Returns `noise.calls` calls with median `seconds`, up to a deviation common
// to all of them.
std::vector<double> CallsForTest(double seconds, const NoiseForTest& noise,
                                 std::mt19937_64& random);

// Share of trials in which a condition held. Prints it.
class ShareForTest {
 public:
  void Add(bool held);
  double share() const;
  // Returns "alpha of piece 1: 94.8 % of 500".
  std::string ToString(const std::string& what) const;

 private:
  int held_ = 0, trials_ = 0;
};

struct BenchRunForTest {
  std::vector<std::string> collectives = {"all_reduce"};
  std::string backend = "gloo";
  int64_t world_size = 2;
  int64_t hosts = 1;  // as many ranks on each, in order
  int64_t in_flight = 1;
  std::vector<int64_t> bytes = {8,     64,     512,     4096,
                                32768, 262144, 2097152, 16777216};
  std::function<double(double bytes)> seconds = [](double bytes) {
    return 1e-4 + 1e-9 * bytes;
  };
  NoiseForTest noise = {.calls = 20, .spread = 0, .tail = 0};
  uint64_t seed = 0;
  int64_t launch = 0;
};

// Returns one run per launch. All times of a launch share a random factor,
// whose logarithm has the scale `launch_deviation` and is normal, or Student's
// t with 3 degrees of freedom if `tail`. Seeds follow from `config.seed`.
std::vector<RunTrace> MakeLaunches(const BenchRunForTest& config, int launches,
                                   double launch_deviation, bool tail = false);

// Returns a run with a row per collective and size. Rank 1 is the slowest, the
// others take half as long; ping_pong has 2 calls per iteration. Iterations
// are `seconds(bytes)` with noise per call, except the last, which takes 100
// times as long and is listed as late by rank 0 only.
RunTrace MakeBenchRun(const BenchRunForTest& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_
