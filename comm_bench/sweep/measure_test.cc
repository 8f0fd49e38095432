#include "comm_bench/sweep/measure.h"

#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/timing/series_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/device/graph.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MeasureConfig Quick() {
  MeasureConfig config;
  config.timing.warmup = 1;
  config.timing.iterations = 4;
  return config;
}

Call AllReduceCall(const Control& control, int64_t count) {
  Call call;
  call.count = count;
  call.in_place = true;
  call.rank = control.rank();
  call.world_size = control.world_size();
  return call;
}

Measurement Measured(FakeRank& rank, const Collective& collective,
                     const Call& call, const MeasureConfig& config) {
  const auto layer = MakeC10dLayer(rank.group);
  const auto measured =
      MeasureRow(*layer, rank.control, collective, call, {}, config);
  EXPECT_TRUE(measured.ok()) << measured.status();
  return measured.ok() ? *measured : Measurement();
}

// Like all_reduce, but rank 1 ends with a wrong element.
void StartWrongly(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
                  Works& works) {
  (*FindCollective("all_reduce"))->start(group, call, buffers, works);
  for (const auto& work : works) work->wait();
  works.clear();
  if (call.rank == 1) buffers.output.data_ptr<float>()[5] = -7;
}

TEST(MeasureTest, TheFirstWrongElementIsNamed) {
  Collective broken = **FindCollective("all_reduce");
  broken.start = StartWrongly;
  OnFakeRanks(3, {}, [&](FakeRank& rank) {
    const Measurement measured =
        Measured(rank, broken, AllReduceCall(rank.control, 8), Quick());
    EXPECT_THAT(measured.wrong,
                HasSubstr("all_reduce of 32 bytes float32 sum: rank 1 has 1 "
                          "wrong element before timing; the first at index 5: "
                          "expected "));
    EXPECT_THAT(measured.wrong, HasSubstr(", got -7"));
    EXPECT_EQ(measured.row.wrong, 2) << "before and after timing";
    EXPECT_EQ(measured.row.record.wrong, rank.control.rank() == 1 ? 2 : 0);
  });
}

// Two ranks of a job, renumbered by the control.
TEST(MeasureTest, AGroupAloneHasTheJobsRanks) {
  Collective broken = **FindCollective("all_reduce");
  broken.start = StartWrongly;
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    const auto layer = MakeC10dLayer(rank.group);
    const auto measured =
        MeasureRow(*layer, rank.control, broken, AllReduceCall(rank.control, 8),
                   {1, 3}, Quick());
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_THAT(measured->wrong, HasSubstr(": rank 3 has 1 wrong element"));
    const CollectiveRecord& record = measured->row.record;
    EXPECT_EQ(record.rank, rank.control.rank() == 0 ? 1 : 3);
    EXPECT_THAT(record.ranks, ElementsAre(1, 3));
    EXPECT_EQ(record.concurrent_groups, 1);
  });
}

TEST(MeasureTest, ARightResultHasNoWrongElement) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    const Measurement measured =
        Measured(rank, **FindCollective("all_reduce"),
                 AllReduceCall(rank.control, 8), Quick());
    EXPECT_EQ(measured.wrong, "");
    EXPECT_EQ(measured.row.wrong, 0);
    const CollectiveRecord& record = measured.row.record;
    EXPECT_EQ(record.seconds.size(), 4);
    // On a loaded machine a rank may start late.
    EXPECT_EQ(measured.row.time.samples + record.late.size(), 4);
  });
}

TEST(MeasureTest, UncheckedRowsSaySo) {
  OnFakeRanks(1, {}, [&](FakeRank& rank) {
    MeasureConfig config = Quick();
    config.check = false;
    const Measurement measured =
        Measured(rank, **FindCollective("all_reduce"),
                 AllReduceCall(rank.control, 8), config);
    EXPECT_EQ(measured.row.wrong, -1);
    EXPECT_EQ(measured.row.record.wrong, -1);
  });
}

// A graph that stores the recorded function and runs it at each replay.
class FakeGraph : public DeviceGraph {
 public:
  explicit FakeGraph(absl::Status outcome) : outcome_(std::move(outcome)) {}
  absl::Status Capture(const std::function<absl::Status()>& work) override {
    work_ = work;
    return outcome_;
  }
  void Replay() override { EXPECT_TRUE(work_().ok()); }

 private:
  const absl::Status outcome_;
  std::function<absl::Status()> work_;
};

GraphMaker GraphsThatReturn(const absl::Status& outcome) {
  return
      [outcome](c10::Device) { return std::make_unique<FakeGraph>(outcome); };
}

TEST(MeasureTest, AGraphHoldsManyRoundsAndACallIsItsShare) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    std::atomic<int> starts = 0;
    static thread_local std::atomic<int>* counted = nullptr;
    counted = &starts;
    Collective all_reduce = **FindCollective("all_reduce");
    all_reduce.start = [](c10d::ProcessGroup& group, const Call& call,
                          Buffers& buffers, Works& works) {
      ++*counted;
      (*FindCollective("all_reduce"))->start(group, call, buffers, works);
    };
    MeasureConfig config = Quick();
    config.graph = true;
    config.make_graph = GraphsThatReturn(absl::OkStatus());
    const Measurement measured =
        Measured(rank, all_reduce, AllReduceCall(rank.control, 8), config);
    EXPECT_EQ(measured.row.wrong, 0) << "replays give the right result";
    EXPECT_TRUE(measured.row.record.graph);
    EXPECT_EQ(measured.row.record.calls_per_iteration, Calls::kGraphRounds);
    // One for setup, one per check, and the rounds of 1 + 4 iterations.
    EXPECT_EQ(starts, 3 + 5 * Calls::kGraphRounds);
  });
}

TEST(MeasureTest, WhatCannotBeRecordedIsRefusedOnAllRanks) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    MeasureConfig config = Quick();
    config.graph = true;
    config.make_graph = GraphsThatReturn(
        rank.control.rank() == 1
            ? absl::FailedPreconditionError("the host reads a tensor")
            : absl::OkStatus());
    const auto layer = MakeC10dLayer(rank.group);
    const auto measured =
        MeasureRow(*layer, rank.control, **FindCollective("all_reduce"),
                   AllReduceCall(rank.control, 8), {}, config);
    EXPECT_THAT(std::string(measured.status().message()),
                HasSubstr("--cuda_graph: all_reduce cannot be recorded: "));
    EXPECT_THAT(std::string(measured.status().message()),
                HasSubstr(rank.control.rank() == 1 ? "the host reads a tensor"
                                                   : "rank 1 could not"));
  });
}

// A CPU's events use the host's clock, within the engine's interval.
TEST(MeasureTest, EventsLieWithinTheHostsTimes) {
  OnFakeRanks(2, {.alpha_us = 300}, [&](FakeRank& rank) {
    MeasureConfig config = Quick();
    config.events = true;
    const Measurement measured =
        Measured(rank, **FindCollective("all_reduce"),
                 AllReduceCall(rank.control, 8), config);
    EXPECT_EQ(measured.row.record.timing, "events");
    for (const double seconds : measured.row.record.seconds) {
      EXPECT_GE(seconds, 300e-6);
    }
  });
}

// Ordinary tensors, counted.
class CountedMemory : public RegisteredMemory {
 public:
  explicit CountedMemory(int& made) : made_(made) {}
  at::Tensor New(int64_t count, c10::ScalarType dtype) override {
    ++made_;
    return at::empty({count}, dtype);
  }

 private:
  int& made_;
};

class RegisteringLayer : public Layer {
 public:
  RegisteringLayer(std::unique_ptr<Layer> inner, absl::Status outcome)
      : inner_(std::move(inner)), outcome_(std::move(outcome)) {}
  std::string name() const override { return "nccl"; }
  int rank() const override { return inner_->rank(); }
  Start Prepare(const Collective& collective, const Call& call) override {
    return [this, start = inner_->Prepare(collective, call)](Buffers& buffers,
                                                             Works& works) {
      ++starts;
      start(buffers, works);
    };
  }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device) override {
    EXPECT_EQ(starts, 1) << "a call must have connected the ranks before";
    if (!outcome_.ok()) return outcome_;
    return std::make_unique<CountedMemory>(made);
  }

  int starts = 0;
  int made = 0;

 private:
  const std::unique_ptr<Layer> inner_;
  const absl::Status outcome_;
};

TEST(MeasureTest, RegisteredBuffersAreTheLayers) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    RegisteringLayer layer(MakeC10dLayer(rank.group), absl::OkStatus());
    MeasureConfig config = Quick();
    config.registered = true;
    config.in_flight = 3;
    Call call = AllReduceCall(rank.control, 8);
    call.in_place = false;
    const auto measured = MeasureRow(
        layer, rank.control, **FindCollective("all_reduce"), call, {}, config);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(layer.made, 6) << "an input and an output of each call";
    EXPECT_EQ(measured->row.record.layer, "nccl");
    EXPECT_TRUE(measured->row.record.registered);
    EXPECT_EQ(measured->row.wrong, 0);
  });
}

TEST(MeasureTest, BuffersThatCannotBeRegisteredAreRefusedOnAllRanks) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    RegisteringLayer layer(MakeC10dLayer(rank.group),
                           rank.control.rank() == 0
                               ? absl::FailedPreconditionError("no memory")
                               : absl::OkStatus());
    MeasureConfig config = Quick();
    config.registered = true;
    const auto measured =
        MeasureRow(layer, rank.control, **FindCollective("all_reduce"),
                   AllReduceCall(rank.control, 8), {}, config);
    EXPECT_THAT(
        std::string(measured.status().message()),
        HasSubstr(rank.control.rank() == 0 ? "no memory" : "rank 0 could not"));
  });
}

// NCCL logs only on the first rank of a group; all ranks must get the choices.
TEST(MeasureTest, ChoicesOfTheFirstRankAreKnownToAll) {
  for (const std::string& name : NcclLogSwitch::Variables()) {
    ::unsetenv(name.c_str());
  }
  auto log = NcclLogSwitch::Take([] {});
  ASSERT_TRUE(log.ok()) << log.status();
  const std::string path = ::getenv("NCCL_DEBUG_FILE");
  OnFakeRanks(3, {}, [&](FakeRank& rank) {
    MeasureConfig config = Quick();
    config.choices = true;
    if (rank.control.rank() == 0) {
      config.nccl_log = log->get();
      std::ofstream(path) << "gpu:1:1 [0] NCCL INFO AllReduce: 32 Bytes -> "
                             "Algo TREE proto LL channel{Lo..Hi}={0..1}\n";
    }
    const Measurement measured =
        Measured(rank, **FindCollective("all_reduce"),
                 AllReduceCall(rank.control, 8), config);
    EXPECT_EQ(measured.row.record.algorithm, "TREE");
    EXPECT_EQ(measured.row.record.protocol, "LL");
  });
  for (const std::string& name : NcclLogSwitch::Variables()) {
    ::unsetenv(name.c_str());
  }
}

// Two ranks as seen by rank 1.
Series TwoRanks() {
  Series series = SeriesOfRanks({{2e-3, 2e-3, 2e-3}, {1e-3, 4e-3, 1e-3}},
                                {{0, 0.01, 0.02}, {0, 0.01, 0.02}});
  series.seconds = {1e-3, 4e-3, 1e-3};
  series.start_seconds = {0, 0.01, 0.02};
  return series;
}

TEST(MeasureTest, ACallIsItsShareOfAnIteration) {
  CallDescription call;
  call.bytes = 1000000;
  call.calls_per_iteration = 2;
  call.bus_factor = 1.5;
  const Row row = Assemble(call, TwoRanks(), /*rank=*/1, MeasureConfig());
  EXPECT_DOUBLE_EQ(row.time.median, 1e-3) << "half of the slowest's";
  EXPECT_DOUBLE_EQ(row.time.max, 2e-3);
  EXPECT_NEAR(row.algbw, 1, 1e-12) << "GB/s, decimal";
  EXPECT_NEAR(row.busbw, 1.5, 1e-12);
  EXPECT_THAT(row.record.seconds, ElementsAre(1e-3, 4e-3, 1e-3));
  EXPECT_EQ(row.record.calls_per_iteration, 2);
}

TEST(MeasureTest, WithoutElementsThereIsNoBandwidth) {
  const Row row = Assemble(CallDescription(), TwoRanks(), 0, MeasureConfig());
  EXPECT_EQ(row.algbw, 0);
  EXPECT_EQ(row.busbw, 0);
}

}  // namespace
}  // namespace rankwise::comm_bench
