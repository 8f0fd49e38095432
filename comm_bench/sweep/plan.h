// The measurements to make, and every reason why they are impossible: all
// errors about combinations of flags, and about the files they name, are
// produced here, before anything runs.
#ifndef RANKWISE_COMM_BENCH_SWEEP_PLAN_H_
#define RANKWISE_COMM_BENCH_SWEEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "comm_bench/sweep/config.h"
#include "comm_bench/sweep/recorded_traffic.h"

namespace rankwise::comm_bench {

// Properties of the ranks that will measure.
struct Job {
  int world_size = 1;
  int ranks_of_host = 1;
  std::string backend = "gloo";
  std::string launcher = "";  // "nproc": this program launched the ranks
  std::optional<c10::Device> device =
      std::nullopt;          // of a rank; nullopt if not yet known
  int64_t memory_bytes = 0;  // of the host; 0 if unknown
};

// One block of the table: all properties except the size.
struct SweepCase {
  const Collective* collective = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::SUM;
  bool in_place = false;
};

// The groups that make a row's calls; the others wait.
enum class Turn { kFirstGroup, kAllGroups };

struct Plan {
  // Concurrent groups of a sweep, as job ranks, rank 0 in the first; empty for
  // one group of all ranks.
  std::vector<std::vector<int>> groups = {};
  std::vector<Turn> turns = {Turn::kAllGroups};  // for a sweep's calls
  // of a group; uniform except for all_to_all_v
  TrafficMatrix traffic;
  // sweep, overlap: all requested combinations that can run
  std::vector<SweepCase> cases = {};
  // One sentence for each combination that cannot run; only if
  // config.skip_unsupported.
  std::vector<std::string> left_out = {};
  // replay: the steps to repeat
  std::optional<RecordedTraffic> recorded = std::nullopt;
  // units: bytes of each, in forward order
  std::vector<int64_t> units = {};
};

// Maximum number of ranks as threads of this process: a row with 10,000 takes
// about 30 s and 2 GB on two cores.
inline constexpr int kMostSimulatedRanks = 10'000;

// Whether one process simulates all ranks of this backend (backends.h); false
// for auto.
bool SimulatesPeers(const std::string& backend);

// Return the measurements of each binary. InvalidArgument, with the flag and a
// remedy, for anything that these ranks cannot measure, as far as they are
// known.
absl::StatusOr<Plan> MakeSweepPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakePairsPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeNewGroupPlan(const BenchConfig& config,
                                      const Job& job);
absl::StatusOr<Plan> MakeLadderPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeOverlapPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeReplayPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeUnitsPlan(const BenchConfig& config, const Job& job);

// Checks that this number of ranks can run as threads of this process.
absl::Status CheckRanks(const Job& job);

// Checks that each rank's buffers of `bytes` fit into the host's memory. `flag`
// requested them; messages append `at_a_time` to the number of bytes.
absl::Status CheckMemory(const BenchConfig& config, const Job& job,
                         absl::string_view flag, int64_t bytes,
                         absl::string_view at_a_time = "");

// Checks that `job` can measure the case.
using CaseCheck = absl::Status (*)(const SweepCase& item,
                                   const BenchConfig& config, const Job& job,
                                   const Plan& plan);
absl::Status CheckCase(const SweepCase& item, const BenchConfig& config,
                       const Job& job, const Plan& plan);

// Adds all combinations of the configuration to plan.cases, or, if `check`
// rejects them, to plan.left_out.
absl::Status AddCases(const BenchConfig& config, const Job& job,
                      CaseCheck check, Plan& plan);

// Returns config.measure, completed for a rank on `device`: whether events are
// used for timing, and whether NCCL's choices are read.
MeasureConfig MeasureOn(c10::Device device, const BenchConfig& config);
// For a ladder: --timing=auto is the host's clock, as the lower rungs have no
// events.
MeasureConfig MeasureLadderOn(c10::Device device, BenchConfig config);

// Returns min, min * factor, ..., and max as the last value, even if it is not
// a power of the factor times min. Requires 1 <= min <= max and factor > 1.
std::vector<int64_t> GeometricSizes(int64_t min, int64_t max, double factor);

// Returns a call of about `bytes` in a group of plan.traffic's number of ranks;
// rank, device and memory are unset.
Call CallOf(const SweepCase& item, const BenchConfig& config, const Plan& plan,
            int64_t bytes);

// A call of a block. `note` is a comment for the user if an explicitly
// requested size was rounded; otherwise "".
struct SizedCall {
  Call call;
  std::string note;
  bool repeats = false;  // rounded to the same size as the previous call
};

// Returns the calls at every size of the sweep.
std::vector<SizedCall> CallsOf(const SweepCase& item, const BenchConfig& config,
                               const Plan& plan);

// Returns config.measure.timing for creating groups: few iterations by default.
TimingConfig TimingOfGroups(const BenchConfig& config);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_PLAN_H_
