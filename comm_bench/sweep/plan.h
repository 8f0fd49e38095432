// What will be measured, and every reason why it cannot be: all refusals of
// what flags mean together, and of the files that they name, are here, and come
// before anything runs.
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

// What is known of the ranks that will measure.
struct Job {
  int world_size = 1;
  int ranks_of_host = 1;
  std::string backend = "gloo";
  std::string launcher = "";  // "nproc": this program started the ranks
  std::optional<c10::Device> device =
      std::nullopt;          // of a rank; none: not known yet
  int64_t memory_bytes = 0;  // of the host; 0: not known
};

// One block of the table: everything but the size.
struct SweepCase {
  const Collective* collective = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::SUM;
  bool in_place = false;
};

// Which groups make a row's calls; the others wait.
enum class Turn { kFirstGroup, kAllGroups };

struct Plan {
  // Of a sweep: the groups that run at the same time, as ranks of the job,
  // rank 0 in the first; empty: one of all ranks.
  std::vector<std::vector<int>> groups = {};
  std::vector<Turn> turns = {Turn::kAllGroups};  // of a sweep's call
  // Of a group; uniform unless all_to_all_v is measured.
  TrafficMatrix traffic;
  // Of a sweep and of overlap: all requested combinations that can run.
  std::vector<SweepCase> cases = {};
  // One sentence for each combination that cannot run; filled only if
  // config.skip_unsupported.
  std::vector<std::string> left_out = {};
  // Of replay: what is repeated.
  std::optional<RecordedTraffic> recorded = std::nullopt;
  // Of units: bytes of each, in order of forward.
  std::vector<int64_t> units = {};
};

// The most ranks that run as threads of this process: one row of 10,000 takes
// about 30 s and 2 GB on two cores.
inline constexpr int kMostPretendedRanks = 10'000;

// Whether one process stands for all ranks of this backend (backends.h); false
// for auto.
bool PretendsPeers(const std::string& backend);

// What each binary will measure. InvalidArgument, by the flag's name and with
// what to do, for all that cannot be measured by these ranks as far as they are
// known.
absl::StatusOr<Plan> MakeSweepPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakePairsPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeNewGroupPlan(const BenchConfig& config,
                                      const Job& job);
absl::StatusOr<Plan> MakeLadderPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeOverlapPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeReplayPlan(const BenchConfig& config, const Job& job);
absl::StatusOr<Plan> MakeUnitsPlan(const BenchConfig& config, const Job& job);

// Whether as many ranks may run as threads of this process.
absl::Status CheckRanks(const Job& job);

// Whether each rank's buffers of `bytes` fit into the host's memory. `flag`
// asks for them; `at_a_time` follows the number of bytes.
absl::Status CheckMemory(const BenchConfig& config, const Job& job,
                         absl::string_view flag, int64_t bytes,
                         absl::string_view at_a_time = "");

// Whether the case can be measured by `job`.
using CaseCheck = absl::Status (*)(const SweepCase& item,
                                   const BenchConfig& config, const Job& job,
                                   const Plan& plan);
absl::Status CheckCase(const SweepCase& item, const BenchConfig& config,
                       const Job& job, const Plan& plan);

// Adds all combinations of the configuration to plan.cases, or to plan.left_out
// what `check` refuses.
absl::Status AddCases(const BenchConfig& config, const Job& job,
                      CaseCheck check, Plan& plan);

// config.measure, completed for a rank on `device`: whether events time it, and
// whether NCCL's choices are read.
MeasureConfig MeasureOn(c10::Device device, const BenchConfig& config);
// For a ladder: --timing=auto is the host's clock, as the lower rungs have no
// events.
MeasureConfig MeasureLadderOn(c10::Device device, BenchConfig config);

// min, min * factor, ... and max, which comes last even where no power of the
// factor meets it. Requires 1 <= min <= max and factor > 1.
std::vector<int64_t> GeometricSizes(int64_t min, int64_t max, double factor);

// A call of about `bytes` in a group of as many ranks as plan.traffic has;
// rank, device and memory are left open.
Call CallOf(const SweepCase& item, const BenchConfig& config, const Plan& plan,
            int64_t bytes);

// A call of a block. `note` is a comment for the user if a size that was named
// is rounded; "" if it is not, or if it is one of a range of sizes.
struct SizedCall {
  Call call;
  std::string note;
  bool repeats = false;  // the call before it, to which it was rounded too
};

// At every size of the sweep.
std::vector<SizedCall> CallsOf(const SweepCase& item, const BenchConfig& config,
                               const Plan& plan);

// config.measure.timing for making groups: by default few iterations.
TimingConfig TimingOfGroups(const BenchConfig& config);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_PLAN_H_
