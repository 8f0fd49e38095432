// Compares the plan with the backends, for every collective, type, reduction
// and place: a call is planned if and only if the backend executes it with the
// correct result.

#include "parallel/comm/backends/backends.h"

#include <stdlib.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/sweep/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/hierarchical.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

constexpr int64_t kBytes = 4000;

BenchConfig Everything() {
  BenchConfig config;
  config.collectives = AllCollectives();
  config.dtypes = AllDtypes();
  config.ops = AllOps();
  config.place = "both";
  config.sizes = {kBytes};
  config.skip_unsupported = true;
  return config;
}

// Returns all combinations, including unsupported ones.
std::vector<SweepCase> AllCases() {
  std::vector<SweepCase> cases;
  for (const Collective* collective : AllCollectives()) {
    for (const c10::ScalarType dtype : AllDtypes()) {
      for (const ReduceOp op : AllOps()) {
        for (const bool in_place : {false, true}) {
          if (!collective->reduces && op != ReduceOp::SUM) continue;
          if (!collective->has_elements && (dtype != at::kFloat || in_place))
            continue;
          cases.push_back({collective, dtype, op, in_place});
        }
      }
    }
  }
  return cases;
}

std::string NameOf(const SweepCase& item) {
  return absl::StrCat(item.collective->name, " of ", DtypeName(item.dtype),
                      " with op ", OpName(item.op),
                      item.in_place ? " in place" : "");
}

// Whether the flags that name only this case are accepted.
bool IsAccepted(const SweepCase& item, const std::string& layer,
                const Job& job) {
  BenchConfig config;
  config.collectives = {item.collective};
  config.dtypes = {item.dtype};
  config.ops = {item.op};
  config.place = item.in_place ? "in" : "out";
  config.sizes = {kBytes};
  config.layer = layer;
  return MakeSweepPlan(config, job).ok();
}

// Runs the case in `group`. Returns "", or why it cannot be measured.
std::string Attempt(const SweepCase& item, c10d::ProcessGroup& group) {
  const Plan plan = {.traffic = TrafficMatrix::Skewed(0, group.getSize())};
  Call call = CallOf(item, BenchConfig(), plan, kBytes);
  call.rank = group.getRank();
  const absl::Status possible = CheckCall(*item.collective, call);
  if (!possible.ok()) return std::string(possible.message());
  return ErrorOf([&] {
    Buffers buffers = item.collective->make(call);
    item.collective->fill(call, buffers);
    Works works;
    item.collective->start(group, call, buffers, works);
    for (const auto& work : works) work->wait();
    const auto wrong = item.collective->check(call, buffers);
    TORCH_CHECK(!wrong.has_value(), "element ", wrong->index, " is ",
                wrong->got, ", not ", wrong->expected);
  });
}

void ExpectAsPlanned(c10d::ProcessGroup& group, const Job& job) {
  for (const SweepCase& item : AllCases()) {
    const std::string why_not = Attempt(item, group);
    EXPECT_EQ(IsAccepted(item, "c10d", job), why_not.empty())
        << "--backend=" << job.backend << ", " << NameOf(item) << ": "
        << (why_not.empty() ? "it can be measured" : why_not);
  }
}

// Runs ranks as threads of this process, connected by `backend`.
void OnRanksOf(const std::string& backend, int world_size) {
  // Ranks as threads would share one flight recorder.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/1);
  const std::string store =
      absl::StrCat(testing::TempDir(), "/", backend, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([=] {
      RankEnv env;
      env.rank = env.local_rank = rank;
      env.world_size = env.local_world_size = world_size;
      CommConfig config;
      config.backend = backend;
      config.device = "cpu";
      config.file_store = store;
      const auto comm = Communicator::Create(env, config);
      ASSERT_TRUE(comm.ok()) << comm.status();
      ExpectAsPlanned(*(*comm)->process_group(),
                      {.world_size = world_size, .backend = backend});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(BackendsTest, GlooDoesWhatIsPlanned) { OnRanksOf("gloo", 2); }

TEST(BackendsTest, SharedMemoryDoesWhatIsPlanned) { OnRanksOf("shm", 2); }

// With one rank, as MPI's ranks are processes; comm_bench_mpi_test runs the
// same plans on several.
TEST(BackendsTest, MpiDoesWhatIsPlanned) {
  const std::string why_not = WhyNoMpi();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  OnRanksOf("mpi", 1);
}

TEST(BackendsTest, TheFakeBackendDoesWhatIsPlanned) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    ExpectAsPlanned(*rank.group, {.world_size = 2, .backend = "fake"});
  });
}

// The hierarchical group passes calls that it does not divide among the levels
// to the flat group, whose name is "".
TEST(BackendsTest, HierarchicalRowsAreThoseOfAllReducesWithLevels) {
  OnHosts({0, 0, 1, 1}, [](Communicator& comm) {
    const absl::StatusOr<Group> group = HierarchicalGroup(comm.world());
    ASSERT_TRUE(group.ok()) << group.status();
    for (const SweepCase& item : AllCases()) {
      comm.StartTraffic();
      const std::string why_not = Attempt(item, *group->process_group());
      const std::vector<CommEvent> events = comm.TakeTraffic();
      const bool has_levels =
          !events.empty() && std::none_of(events.begin(), events.end(),
                                          [](const CommEvent& event) {
                                            return event.group == "";
                                          });
      EXPECT_EQ(IsAccepted(item, "hierarchical",
                           {.world_size = 4, .ranks_of_host = 2}),
                why_not.empty() && has_levels)
          << NameOf(item) << why_not;
    }
  });
}

// According to nccl.h, ncclDataType_t and ncclRedOp_t have all types and
// reductions of the benchmark, and c10d composes the other collectives of sends
// and receives.
TEST(BackendsTest, NcclIsPlannedToDoWhatGlooDoes) {
  for (const SweepCase& item : AllCases()) {
    const Job nccl = {.world_size = 2,
                      .backend = "nccl",
                      .device = c10::Device(c10::kCUDA, 0)};
    const bool possible = IsAccepted(item, "c10d", {.world_size = 2});
    EXPECT_EQ(IsAccepted(item, "c10d", nccl), possible) << NameOf(item);
    EXPECT_EQ(IsAccepted(item, "nccl", nccl),
              possible && item.collective->nccl_calls != nullptr)
        << NameOf(item);
  }
}

// "all" omits exactly the values that are rejected by name, with a note for
// each.
TEST(BackendsTest, AllIsEverythingThatIsAcceptedByName) {
  for (const std::string backend : {"gloo", "shm", "mpi", "fake", "nccl"}) {
    const Job job = {.world_size = 2, .backend = backend};
    const absl::StatusOr<Plan> plan = MakeSweepPlan(Everything(), job);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::set<std::string> planned, accepted;
    for (const SweepCase& item : plan->cases) planned.insert(NameOf(item));
    for (const SweepCase& item : AllCases()) {
      if (IsAccepted(item, "c10d", job)) accepted.insert(NameOf(item));
    }
    EXPECT_EQ(planned, accepted) << backend;
    EXPECT_EQ(plan->left_out.empty(), false) << backend;
  }
}

}  // namespace
}  // namespace rankwise::comm_bench
