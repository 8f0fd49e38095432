// Tests both layers on GPUs, with one rank per GPU as threads of this process.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "comm_bench/modes/ladder.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/sweep/measure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "parallel/device/device_facts.h"
#include "parallel/device/require_gpus.h"
#include "parallel/launch/rank_env.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

// One rank on its own GPU.
struct GpuRank {
  Communicator& comm;
  Control& control;

  std::unique_ptr<Layer> Connect(const std::string& layer) {
    if (layer == "c10d") return MakeC10dLayer(comm.process_group());
    auto nccl = ConnectNcclLayer(control, {}, comm.device());
    EXPECT_TRUE(nccl.ok()) << nccl.status();
    return nccl.ok() ? *std::move(nccl) : nullptr;
  }

  Call CallOf(const Collective& collective, int64_t bytes,
              c10::ScalarType dtype = c10::ScalarType::Float) const {
    Call call;
    call.count = CountFor(collective, bytes, dtype, comm.world_size());
    call.dtype = dtype;
    call.in_place = collective.prefers_in_place;
    call.rank = comm.rank();
    call.world_size = comm.world_size();
    call.device = comm.device();
    return call;
  }
};

void RunRankOnGpu(int rank, int world_size, const std::string& store,
                  const std::function<void(GpuRank&)>& body) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
  CommConfig config;
  config.backend = "nccl";
  config.device = "cuda";  // the GPU of its local rank
  config.file_store = store;
  config.collective_timeout = absl::Seconds(60);
  auto comm = Communicator::Create(env, config);
  ASSERT_TRUE(comm.ok()) << comm.status();
  const auto control = MakeGroupControl((*comm)->process_group());
  GpuRank self = {**comm, *control};
  body(self);
}

void OnGpuRanks(int world_size, const std::function<void(GpuRank&)>& body) {
  static std::atomic<int> group{0};
  // There is one flight recorder per process, which does not support ranks as
  // threads.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const std::string store =
      absl::StrCat(testing::TempDir(), "/gpu_ranks", group++, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        RunRankOnGpu(rank, world_size, store, body);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns 1, 2 and the number of GPUs.
std::set<int> WorldSizes() {
  std::set<int> sizes = {1, std::min(2, VisibleGpus()), VisibleGpus()};
  sizes.erase(0);
  return sizes;
}

MeasureConfig Quick() {
  MeasureConfig config;
  config.timing.warmup = 1;
  config.timing.iterations = 3;
  return config;
}

// Returns the same calls on every rank.
std::vector<Call> VariantsOf(const Collective& collective, GpuRank& rank,
                             const TrafficMatrix& traffic) {
  const auto ops =
      collective.reduces ? AllOps() : std::vector<ReduceOp>{ReduceOp::SUM};
  const auto dtypes = collective.has_elements
                          ? AllDtypes()
                          : std::vector<c10::ScalarType>{c10::kFloat};
  std::vector<Call> calls;
  for (const c10::ScalarType dtype : dtypes) {
    for (const ReduceOp op : ops) {
      for (const bool in_place : {false, true}) {
        Call call = rank.CallOf(collective, 40000, dtype);
        call.op = op;
        call.in_place = in_place;
        call.root = rank.comm.world_size() - 1;
        call.traffic = &traffic;
        calls.push_back(call);
      }
    }
  }
  return calls;
}

// Returns "" if the call can run.
std::string RefusalOf(const Collective& collective, const Call& call,
                      const std::string& layer) {
  if (layer == "nccl" && collective.nccl_calls == nullptr)
    return absl::StrCat("nccl.h has no ", collective.name);
  return std::string(CheckCall(collective, call).message());
}

class LayerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(LayerTest, EveryCallIsRightOrRefusedByName) {
  for (const int world_size : WorldSizes()) {
    OnGpuRanks(world_size, [&](GpuRank& rank) {
      const auto layer = rank.Connect(GetParam());
      const TrafficMatrix traffic = TrafficMatrix::Skewed(1, world_size);
      for (const Collective* collective : AllCollectives()) {
        for (const Call& call : VariantsOf(*collective, rank, traffic)) {
          const std::string refusal = RefusalOf(*collective, call, GetParam());
          if (!refusal.empty()) {
            EXPECT_THAT(refusal, HasSubstr(collective->name));
            continue;
          }
          const auto measured =
              MeasureRow(*layer, rank.control, *collective, call, {}, Quick());
          ASSERT_TRUE(measured.ok()) << measured.status();
          EXPECT_EQ(measured->wrong, "")
              << DtypeName(call.dtype) << " " << OpName(call.op)
              << (call.in_place ? " in place" : " out of place") << ", "
              << world_size << " ranks";
        }
      }
    });
  }
}

// The host's time includes the events; events have a resolution of half a
// microsecond.
TEST_P(LayerTest, EventsLieWithinTheHostsTime) {
  constexpr double kResolution = 1e-6;
  OnGpuRanks(VisibleGpus(), [&](GpuRank& rank) {
    const auto layer = rank.Connect(GetParam());
    const Collective& collective = **FindCollective("all_reduce");
    Call call = rank.CallOf(collective, 8 << 20);
    call.in_place = false;
    Calls calls(*layer, collective, call, /*in_flight=*/1);
    calls.Fill();
    calls.Run();
    for (int i = 0; i < 50; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const double events = calls.TimeRounds();
      const std::chrono::duration<double> host =
          std::chrono::steady_clock::now() - start;
      EXPECT_GT(events, 0);
      EXPECT_LE(events, host.count() + kResolution);
    }
  });
}

// MeasureRow checks every element of a replay's result.
TEST_P(LayerTest, ReplaysOfAGraphAreRight) {
  for (const int world_size : WorldSizes()) {
    OnGpuRanks(world_size, [&](GpuRank& rank) {
      const auto layer = rank.Connect(GetParam());
      for (const Collective* collective : AllCollectives()) {
        Call call = rank.CallOf(*collective, 1 << 16);
        const TrafficMatrix traffic = TrafficMatrix::Skewed(1, world_size);
        call.traffic = &traffic;
        if (!collective->has_elements) continue;
        if (!RefusalOf(*collective, call, GetParam()).empty()) continue;
        MeasureConfig config = Quick();
        config.graph = config.events = true;
        config.in_flight = collective->calls_per_iteration > 1 ? 1 : 2;
        const auto measured =
            MeasureRow(*layer, rank.control, *collective, call, {}, config);
        ASSERT_TRUE(measured.ok()) << measured.status();
        EXPECT_EQ(measured->wrong, "");
        EXPECT_EQ(measured->row.call().calls_per_iteration,
                  Calls::kGraphRounds * config.in_flight *
                      collective->calls_per_iteration);
      }
    });
  }
}

TEST_P(LayerTest, RegisteredBuffersHoldTheRightResults) {
  for (const int world_size : WorldSizes()) {
    OnGpuRanks(world_size, [&](GpuRank& rank) {
      const auto layer = rank.Connect(GetParam());
      for (const char* name : {"all_reduce", "all_gather", "reduce_scatter"}) {
        const Collective& collective = **FindCollective(name);
        for (const bool in_place : {false, true}) {
          Call call = rank.CallOf(collective, 4 << 20);
          call.in_place = in_place;
          MeasureConfig config = Quick();
          config.registered = true;
          const auto measured =
              MeasureRow(*layer, rank.control, collective, call, {}, config);
          // c10d's allocator fails with this error on GPUs without multicast.
          if (absl::IsFailedPrecondition(measured.status()))
            GTEST_SKIP() << measured.status();
          ASSERT_TRUE(measured.ok()) << measured.status();
          EXPECT_EQ(measured->wrong, "");
          EXPECT_TRUE(measured->row.call().registered);
        }
      }
    });
  }
}

TEST_P(LayerTest, NcclTellsWhatItChose) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  if (!GpusCompute()) GTEST_SKIP() << "a virtual NCCL chooses nothing";
  auto log = NcclLogSwitch::Take(RereadNcclVariables);
  if (!log.ok()) GTEST_SKIP() << log.status();
  OnGpuRanks(2, [&](GpuRank& rank) {
    const auto layer = rank.Connect(GetParam());
    const Collective& collective = **FindCollective("all_reduce");
    MeasureConfig config = Quick();
    config.choices = true;
    if (rank.comm.rank() == 0) config.nccl_log = log->get();
    for (const bool graph : {false, true}) {
      config.graph = graph;
      const auto measured =
          MeasureRow(*layer, rank.control, collective,
                     rank.CallOf(collective, 1 << 20), {}, config);
      ASSERT_TRUE(measured.ok()) << measured.status();
      EXPECT_NE(measured->row.call().algorithm, "");
      EXPECT_NE(measured->row.call().protocol, "");
    }
  });
  for (const std::string& name : NcclLogSwitch::Variables()) {
    ::unsetenv(name.c_str());
  }
  RereadNcclVariables();
}

INSTANTIATE_TEST_SUITE_P(Both, LayerTest, ::testing::Values("c10d", "nccl"),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

TEST(NcclLadderTest, StandsOnNcclItself) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  for (const int world_size : WorldSizes()) {
    OnGpuRanks(world_size, [&](GpuRank& rank) {
      TimingConfig config;
      config.iterations = 10;
      for (const bool events : {false, true}) {
        const auto ladder = RunLadder(rank.comm, rank.control, 1 << 16, config,
                                      /*stop=*/nullptr, events);
        ASSERT_TRUE(ladder.ok()) << ladder.status();
        EXPECT_EQ(ladder->rungs.front().name, "nccl");
        EXPECT_EQ(ladder->rungs.back().name, "reducer");
        EXPECT_EQ(ladder->events, events);
      }
    });
  }
}

}  // namespace
}  // namespace rankwise::comm_bench
