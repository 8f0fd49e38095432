// NCCL on GPUs: one rank on one GPU, and two ranks on two.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_process.h"
#include "parallel/device/device_facts.h"
#include "parallel/device/graph.h"
#include "parallel/device/require_gpus.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Communicator> Alone() {
  CommConfig config;
  config.backend = "nccl";
  config.device = "cuda";
  config.collective_timeout = absl::Seconds(30);
  auto comm = Communicator::Create(RankEnv(), config);
  EXPECT_TRUE(comm.ok()) << comm.status();
  return comm.ok() ? *std::move(comm) : nullptr;
}

class AloneOverNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
    comm_ = Alone();
    ASSERT_NE(comm_, nullptr);
    ones_ = at::ones({3}, comm_->device());
  }

  std::unique_ptr<Communicator> comm_;
  at::Tensor ones_;
};

TEST_F(AloneOverNcclTest, IsBoundToItsGpu) {
  EXPECT_EQ(comm_->backend(), "nccl");
  EXPECT_EQ(comm_->device().str(), "cuda:0");
  EXPECT_EQ(comm_->why_on_cpu(), "");
  EXPECT_EQ(comm_->process_group()->getBoundDeviceId(), comm_->device());
  const auto backend = comm_->process_group()->getBackend(c10::kCUDA);
  EXPECT_EQ(backend->getBackendName(), "nccl");
  EXPECT_EQ(backend->getBoundDeviceId(), comm_->device());
  EXPECT_THAT(ThisBuild().nccl, ContainsRegex("^2\\.[0-9]+\\.[0-9]+$"));
}

TEST_F(AloneOverNcclTest, AllCollectivesGiveTheRightResults) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                            ReduceOp::kMax, ReduceOp::kProduct}) {
    EXPECT_TRUE(comm_->AllReduce(ones_, op).ok());
    EXPECT_EQ(ones_.cpu().sum().item<float>(), 3);
  }
  EXPECT_TRUE(comm_->Broadcast(ones_, 0).ok());
  const auto all = comm_->AllGather(ones_);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE((*all)[0].cpu().equal(ones_.cpu()));
  EXPECT_TRUE(comm_->Barrier().ok());
}

TEST_F(AloneOverNcclTest, CpuTensorsGoThroughGloo) {
  at::Tensor loss = at::ones({1});
  EXPECT_TRUE(comm_->AllReduce(loss, ReduceOp::kAverage).ok());
  EXPECT_EQ(loss.item<float>(), 1);
}

TEST_F(AloneOverNcclTest, ASplitGroupWorks) {
  const auto group = comm_->NewGroup("dp", {0});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(group->process_group()->getBoundDeviceId(), comm_->device());
  std::vector<at::Tensor> tensors = {ones_};
  group->process_group()->allreduce(tensors)->wait();
  at::Tensor gathered = at::ones({3}, comm_->device());
  group->process_group()->_allgather_base(gathered, ones_)->wait();
  group->process_group()->_reduce_scatter_base(ones_, gathered)->wait();
  EXPECT_EQ(ones_.cpu().sum().item<float>(), 3);
}

TEST_F(AloneOverNcclTest, ACollectivesOwnEndIsNotSeenByTheHost) {
  comm_->StartTraffic();
  EXPECT_TRUE(comm_->AllReduce(ones_).ok());
  EXPECT_EQ(ones_.cpu().sum().item<float>(), 3);  // the host waits
  absl::SleepFor(absl::Milliseconds(500));
  const std::vector<CommEvent> events = comm_->TakeTraffic();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_GT(events[0].start_ns, 0);
  EXPECT_EQ(events[0].end_ns, 0);
}

TEST_F(AloneOverNcclTest, TheFlightRecorderIsReached) {
  EXPECT_TRUE(comm_->AllReduce(ones_).ok());
  EXPECT_THAT(DumpNcclRecorder(),
              AllOf(HasSubstr("nccl:all_reduce"), HasSubstr("\"pg_config\"")));
}

TEST_F(AloneOverNcclTest, ACollectiveIsCapturedInAGraphUnderTheWatchdog) {
  auto graph = MakeDeviceGraph(comm_->device());
  ASSERT_TRUE(graph.ok()) << graph.status();
  // The allocations of a first call must not be captured.
  EXPECT_TRUE(comm_->AllReduce(ones_).ok());
  const absl::Status captured = (*graph)->Capture([&] {
    // Long enough for the watchdog to poll while the graph is captured.
    absl::SleepFor(absl::Milliseconds(200));
    const absl::Status status = comm_->AllReduce(ones_);
    ones_.add_(1);
    return status;
  });
  ASSERT_TRUE(captured.ok()) << captured;
  (*graph)->Replay();
  (*graph)->Replay();
  EXPECT_EQ(ones_[0].item<float>(), 3);
}

TEST_F(AloneOverNcclTest, AnAbortedCommunicatorEnds) {
  EXPECT_TRUE(comm_->AllReduce(ones_).ok());
  const absl::Status status = comm_->ExplainFailure(
      "a test",
      c10::DistBackendError({__func__, __FILE__, __LINE__},
                            "NCCL error: unhandled cuda error, NCCL version "
                            "2\nncclUnhandledCudaError: x"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("a test failed on"));
  EXPECT_FALSE(comm_->AllReduce(ones_).ok());
  comm_.reset();
}

std::vector<std::string> Ranks(int count, const std::string& scenario,
                               const std::string& timeout = "60s") {
  return {Runfile("parallel/comm/test_rank"),
          absl::StrCat("--nproc=", count),
          "--scenario=" + scenario,
          "--device=cuda",
          "--backend=nccl",
          "--collective_timeout=" + timeout};
}

TEST(NcclRanksTest, MoreRanksThanGpusAreRefusedWithBothCounts) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const int ranks = VisibleGpus() + 1;
  TestProcess process(Ranks(ranks, "all"));
  EXPECT_NE(process.Wait(), 0);
  EXPECT_THAT(process.Stderr(),
              HasSubstr(absl::StrCat(ranks, " local ranks but ", VisibleGpus(),
                                     VisibleGpus() == 1 ? " GPU;" : " GPUs;")));
}

// Each rank assumes that it owns the one GPU it sees.
TEST(NcclRanksTest, TwoRanksOnOneGpuAreRefused) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const std::string store = "--file_store=" + TemporaryPath("store");
  std::vector<std::unique_ptr<TestProcess>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<TestProcess>(
        std::vector<std::string>{Runfile("parallel/comm/test_rank"), store,
                                 "--device=cuda", "--scenario=all"},
        std::vector<std::string>{
            "CUDA_VISIBLE_DEVICES=0", absl::StrCat("RANK=", rank),
            absl::StrCat("LOCAL_RANK=", rank), "WORLD_SIZE=2",
            "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"}));
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->Wait(), 1);
    EXPECT_THAT(rank->Stderr(),
                ContainsRegex("rank 0 \\(cuda:0 on .*\\) and rank 1 \\(cuda:0 "
                              "on .*\\) are on one GPU, GPU-"));
  }
}

TEST(NcclRanksTest, TwoRanksReduce) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  TestProcess process(Ranks(2, "all"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_TRUE(
      process.AwaitOutput("mean 0.5 root 1 last 10", 2, absl::Seconds(1)))
      << process.Stdout();
}

TEST(NcclRanksTest, ALateRankIsNamedAndNobodyHangs) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  TestProcess process(Ranks(2, "late", "3s"));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(HasSubstr("communication failed on rank 0 of 2 in all_reduce #2"),
            HasSubstr("rank 1 did not arrive: it is alive"),
            HasSubstr("count, with their states) is in /"),
            Not(HasSubstr("frame #")), Not(HasSubstr("terminate called"))));
}

TEST(NcclRanksTest, AKilledRankIsNamedAndNobodyHangs) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  TestProcess process(Ranks(2, "kill", "10m"));
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_THAT(process.Stderr(), AllOf(HasSubstr("rank 1 is dead: signal 9"),
                                      Not(HasSubstr("frame #"))));
}

}  // namespace
}  // namespace rankwise
