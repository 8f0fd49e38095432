// Calls and runs of comm_bench made up with a known truth, noisy as a machine's
// are.
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
  double spread = 0.1;   // of the logarithm of a call's time
  double tail = 0.05;    // share of the calls that take up to 11 times as long
  double deviation = 0;  // of a size's logarithm from the line
  double correlation = 0;  // lag-1, of the logarithms of successive calls
};

// `noise.calls` calls whose median is `seconds`, but for a deviation that they
// share.
std::vector<double> CallsForTest(double seconds, const NoiseForTest& noise,
                                 std::mt19937_64& random);

// How often something held in many trials. Prints its share.
class ShareForTest {
 public:
  void Add(bool held);
  double share() const;
  // "alpha of piece 1: 94.8 % of 500"
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

// One run per launch. All times of a launch share a random factor, whose
// logarithm has the scale `launch_deviation` and is normal, or Student's t with
// 3 degrees of freedom if `tail`. Seeds follow from `config.seed`.
std::vector<RunTrace> MakeLaunches(const BenchRunForTest& config, int launches,
                                   double launch_deviation, bool tail = false);

// A row per collective and size. Rank 1 is the slowest, the others take half as
// long; ping_pong has two trips. Iterations other than the last are
// `seconds(bytes)` with noise for each call; the last is 100 times as long, and
// late by rank 0's record alone.
RunTrace MakeBenchRun(const BenchRunForTest& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_RUNS_FOR_TEST_H_
