// Runs the ranks of a backend that simulates its peers as threads of this
// process.

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/environment.h"
#include "comm_bench/run_rank.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

// Ranks with simulated communication, which exchange their samples at no cost.
struct SimulatedGroup {
  SimulatedGroup(const FakeBackendConfig& costs, std::vector<int> of)
      : ranks(std::move(of)),
        measured(static_cast<int>(ranks.size()), FakeCostsOf(costs, ranks)),
        free(static_cast<int>(ranks.size()), {}) {}

  const std::vector<int> ranks;  // job ranks
  const FakeWorld measured, free;
};

// Runs body(rank) for every rank on its own thread, after all threads have
// started. Returns the first rank's error.
absl::Status OnThreads(int ranks,
                       const std::function<absl::Status(int)>& body) {
  enum Signal { kWait, kStart, kGiveUp };
  std::atomic<Signal> signal = kWait;
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  try {
    while (threads.size() < statuses.size()) {
      threads.emplace_back([&, rank = static_cast<int>(threads.size())] {
        signal.wait(kWait);
        if (signal == kStart) statuses[rank] = body(rank);
      });
    }
    signal = kStart;
  } catch (const std::system_error& error) {
    statuses[0] = absl::ResourceExhaustedError(absl::StrCat(
        "--fake_world_size=", ranks, ": the system starts ", threads.size(),
        " threads at most: ", error.code().message(),
        "; use fewer ranks, or raise the limit on threads"));
    signal = kGiveUp;
  }
  signal.notify_all();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// One thread of RunSimulatedRanks.
absl::Status RunSimulatedRank(const Assignment& assignment,
                              const SimulatedGroup& all,
                              const SimulatedGroup& own, int number) {
  std::optional<VirtualTime> time;
  if (assignment.config.fake_virtual_time) time.emplace();
  const auto place =
      static_cast<int>(std::find(own.ranks.begin(), own.ranks.end(), number) -
                       own.ranks.begin());
  const std::unique_ptr<Control> control =
      MakeGroupControl(MakeFakeProcessGroup(all.free.backend(number)));
  const std::unique_ptr<Control> group_control =
      MakeGroupControl(MakeFakeProcessGroup(own.free.backend(place)));
  BenchRank rank;
  if (!assignment.plan.groups.empty()) rank.ranks = own.ranks;
  rank.group = MakeFakeProcessGroup(own.measured.backend(place));
  rank.group_control = group_control.get();
  rank.control = control.get();
  rank.stop = &interrupted;
  try {
    return Measure(assignment, rank);
  } catch (const std::exception& error) {
    return absl::InternalError(PlainMessage(error));
  }
}

}  // namespace

absl::Status RunSimulatedRanks(const Question& question,
                               const BenchConfig& config,
                               const CommConfig& comm) {
  CatchInterrupts();
  RankEnv env = FakeRankEnvFromFlags();
  env.local_world_size = env.world_size;
  const RunningRank running = DescribeRank(question, env, c10::kCPU);
  ASSIGN_OR_RETURN(RunRecord run, DescribeRun(running));
  run.backend = comm.backend;
  ASSIGN_OR_RETURN(const Plan plan,
                   question.plan(config, JobOf(env, run, c10::kCPU)));
  std::vector<int> everybody(env.world_size);
  std::iota(everybody.begin(), everybody.end(), 0);
  const SimulatedGroup all(comm.fake, everybody);
  std::list<SimulatedGroup> groups;
  std::vector<const SimulatedGroup*> group_of(env.world_size, &all);
  for (const std::vector<int>& ranks : plan.groups) {
    groups.emplace_back(comm.fake, ranks);
    for (const int rank : ranks) group_of[rank] = &groups.back();
  }
  const EnvironmentRecord environment = CollectEnvironment(0);
  const Assignment assignment = {question, config, plan, run, environment};
  return OnThreads(env.world_size, [&](int rank) {
    at::set_num_threads(running.threads);
    return RunSimulatedRank(assignment, all, *group_of[rank], rank);
  });
}

}  // namespace rankwise::comm_bench
