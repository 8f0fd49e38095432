#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr int kWorld = 4;

class MonitoredBackendTest : public ::testing::Test {
 protected:
  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  c10::intrusive_ptr<c10d::Backend> backend_ =
      MakeMonitoredBackend(MakeFakeBackend(1, kWorld, {}), log_);
  c10::intrusive_ptr<c10d::ProcessGroup> group_ =
      MakeFakeProcessGroup(backend_);

  // The log records the end just after waiters wake.
  bool BecomesIdle() const {
    const Deadline deadline(absl::Seconds(20));
    while (log_->in_flight() > 0 && !deadline.passed()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return log_->in_flight() == 0;
  }

  std::vector<at::Tensor> one_ = {at::ones({kWorld})};
};

TEST_F(MonitoredBackendTest, KeepsRankSizeAndName) {
  EXPECT_EQ(backend_->getRank(), 1);
  EXPECT_EQ(backend_->getSize(), kWorld);
  EXPECT_EQ(backend_->getBackendName(),
            MakeFakeBackend(1, kWorld, {})->getBackendName());
}

TEST_F(MonitoredBackendTest, LogsCollectivesOfAProcessGroup) {
  group_->allreduce(one_)->wait();
  EXPECT_EQ(one_[0][0].item<float>(), kWorld);
  EXPECT_EQ(log_->LastStarted().description, "all_reduce #1 of [[4]] float32");
  EXPECT_TRUE(BecomesIdle());
  group_->broadcast(one_)->wait();
  group_->barrier()->wait();
  EXPECT_EQ(log_->LastStarted().description, "barrier #3");
  EXPECT_TRUE(BecomesIdle());
  EXPECT_EQ(log_->LastStarted().state, CollectiveReport::State::kDone);
}

TEST_F(MonitoredBackendTest, ForwardsEveryCollectiveOfTheFakeBackend) {
  at::Tensor small = at::ones({1}), large = at::zeros({kWorld});
  std::vector<at::Tensor> smalls = {small};
  std::vector<std::vector<at::Tensor>> slots = {
      {at::zeros({1}), at::zeros({1}), at::zeros({1}), at::zeros({1})}};
  std::vector<std::vector<at::Tensor>> none;
  std::vector<at::Tensor> four = slots[0], other_four = slots[0];
  std::vector<int64_t> even;
  c10d::ScatterOptions from_rank_0;
  group_->reduce(one_)->wait();
  group_->allgather(slots, smalls)->wait();
  group_->_allgather_base(large, small)->wait();
  group_->reduce_scatter(smalls, slots)->wait();
  group_->_reduce_scatter_base(small, large)->wait();
  group_->alltoall_base(large, large, even, even)->wait();
  group_->alltoall(four, other_four)->wait();
  group_->gather(none, smalls)->wait();
  group_->scatter(smalls, none, from_rank_0)->wait();
  EXPECT_EQ(log_->LastStarted().description, "scatter #9 of [[1]] float32");
  EXPECT_TRUE(BecomesIdle());
}

TEST_F(MonitoredBackendTest, MessagesKeepTheGroupsNumber) {
  group_->allreduce(one_)->wait();
  group_->send(one_, 2, /*tag=*/0)->wait();
  EXPECT_EQ(log_->LastStarted().description,
            "send with rank 2 after #1 of [[4]] float32");
  group_->recv(one_, 2, /*tag=*/0)->wait();
  EXPECT_EQ(log_->LastStarted().sequence, 1u);
}

class ThrowingBackend : public c10d::Backend {
 public:
  ThrowingBackend() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "throwing"; }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    throw std::runtime_error("no");
  }
};

class FailingMessage : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override {
    throw std::runtime_error("Connection closed by peer");
  }
};

class UnansweredBackend : public c10d::Backend {
 public:
  UnansweredBackend() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "unanswered"; }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int,
                                      int) override {
    return c10::make_intrusive<FailingMessage>();
  }
};

TEST_F(MonitoredBackendTest, AMessageFailsInTheWaitForIt) {
  const int group = log_->AddGroup("pp", {1, 5});
  const auto backend = MakeMonitoredBackend(
      c10::make_intrusive<UnansweredBackend>(), log_, {group});
  const auto work = backend->recv(one_, 1, /*tag=*/0);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kUnobserved);
  backend->recv(one_, 1, /*tag=*/0);
  EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
  EXPECT_EQ(log_->Suspect().description,
            "recv with rank 5 after #0 of group pp (ranks 1, 5) of [[4]] "
            "float32");
}

TEST_F(MonitoredBackendTest, AFailedMessageIsNotedHoweverOldItIs) {
  const auto backend =
      MakeMonitoredBackend(c10::make_intrusive<UnansweredBackend>(), log_);
  const auto work = backend->recv(one_, 1, /*tag=*/0);
  for (int i = 0; i < 1000; ++i) group_->barrier()->wait();
  EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
  EXPECT_EQ(log_->Suspect().peer, 1);
}

// Without a future, like the works of Gloo's reduce_scatters.
class WaitedWork : public c10d::Work {
 public:
  explicit WaitedWork(bool ok) : ok_(ok) {}
  bool wait(std::chrono::milliseconds) override {
    if (!ok_) throw std::runtime_error("Connection closed by peer");
    return true;
  }

 private:
  const bool ok_;
};

class WaitedBackend : public c10d::Backend {
 public:
  explicit WaitedBackend(bool ok) : Backend(0, 2), ok_(ok) {}
  const std::string getBackendName() const override { return "waited"; }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor&, at::Tensor&, const c10d::ReduceScatterOptions&) override {
    return c10::make_intrusive<WaitedWork>(ok_);
  }

 private:
  const bool ok_;
};

class ReduceScatterTest : public MonitoredBackendTest {
 protected:
  c10::intrusive_ptr<c10d::Work> Start(bool ok) {
    const auto backend =
        MakeMonitoredBackend(c10::make_intrusive<WaitedBackend>(ok), log_);
    at::Tensor output = at::zeros({1});
    return backend->_reduce_scatter_base(output, one_[0], {});
  }
};

TEST_F(ReduceScatterTest, EndsInTheWaitForIt) {
  const auto work = Start(/*ok=*/true);
  EXPECT_EQ(log_->in_flight(), 1);
  work->wait();
  work->wait();
  EXPECT_EQ(log_->in_flight(), 0);
  EXPECT_EQ(log_->LastStarted().state, CollectiveReport::State::kDone);
}

TEST_F(ReduceScatterTest, FailsInTheWaitForIt) {
  const auto work = Start(/*ok=*/false);
  EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_EQ(log_->in_flight(), 0);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
}

TEST_F(ReduceScatterTest, EndsWhenNobodyWaits) {
  Start(/*ok=*/true);
  EXPECT_EQ(log_->in_flight(), 0);
}

TEST_F(MonitoredBackendTest, ACallThatThrowsIsLoggedAsFailed) {
  const auto backend =
      MakeMonitoredBackend(c10::make_intrusive<ThrowingBackend>(), log_);
  EXPECT_THROW(backend->allreduce(one_), std::runtime_error);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
  EXPECT_EQ(log_->in_flight(), 0);
}

}  // namespace
}  // namespace rankwise
