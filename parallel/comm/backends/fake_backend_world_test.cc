// FakeWorld: ranks as threads that exchange their data.
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/backends/fake_backend_exchange.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/types.h"

namespace rankwise {
namespace {

using c10d::ReduceOp;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using torch::Tensor;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using Tensors = std::vector<Tensor>;
using Clock = FakeTimeline::Clock;

void OnRanks(int world_size, const FakeBackendConfig& config,
             const std::function<void(int rank, const GroupPtr&)>& body) {
  FakeWorld world(world_size, config);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back(
        [&, rank] { body(rank, MakeFakeProcessGroup(world.backend(rank))); });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor Filled(double value, int64_t size = 2) {
  return at::full({size}, value);
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(FakeWorldTest, AllReduceCombinesEveryRanksData) {
  for (int world_size : {1, 2, 3, 4}) {
    OnRanks(world_size, {}, [&](int rank, const GroupPtr& group) {
      for (auto [op, expected] :
           std::vector<std::pair<ReduceOp::RedOpType, double>>{
               {ReduceOp::SUM, world_size * (world_size + 1) / 2.0},
               {ReduceOp::AVG, (world_size + 1) / 2.0},
               {ReduceOp::MIN, 1},
               {ReduceOp::MAX, world_size}}) {
        Tensors x{Filled(rank + 1)};
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        group->allreduce(x, options)->wait();
        EXPECT_TRUE(x[0].equal(Filled(expected))) << x[0];
      }
    });
  }
}

double Now(const VirtualTime& time) {
  return std::chrono::duration<double>(time.now().time_since_epoch()).count();
}

// Rank 2 enters after a second, and ranks 1 and 2 are late by 2 s: the call
// ends after 3 s + alpha.
TEST(FakeWorldTest, VirtualTimeIsExactAndPassesAtOnce) {
  const auto begin = steady_clock::now();
  OnRanks(3, {.alpha_us = 1e9, .skew_us = {0, 2e6, 2e6}},
          [](int rank, const GroupPtr& group) {
            VirtualTime time;
            if (rank == 2) time.Advance(1);
            Tensors x{Filled(rank + 1)};
            const auto work = group->allreduce(x);
            double completed = 0;
            work->getFuture()->addCallback(
                [&](c10::ivalue::Future&) { completed = Now(time); });
            EXPECT_EQ(Now(time), rank == 2 ? 1 : 0) << "calls return at once";
            if (rank == 0) time.Advance(5000);  // computes meanwhile
            work->wait();
            EXPECT_EQ(Now(time), rank == 0 ? 5000 : 1003);
            EXPECT_EQ(completed, 1003);
            EXPECT_TRUE(x[0].equal(Filled(6)));
          });
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(1000));
}

// The second message on a link waits for the first.
TEST(FakeWorldTest, MessagesInVirtualTime) {
  OnRanks(2, {.alpha_us = 1000, .beta_ns_per_byte = 1e6},
          [](int rank, const GroupPtr& group) {
            VirtualTime time;
            for (const double arrived : {9e-3, 18e-3}) {
              Tensors x{Filled(arrived + rank)};  // 8 bytes
              if (rank == 0) {
                group->send(x, 1, 0)->wait();
              } else {
                group->recv(x, 0, 0)->wait();
                EXPECT_TRUE(x[0].equal(Filled(arrived)));
              }
              EXPECT_EQ(Now(time), arrived);
            }
          });
}

TEST(FakeWorldTest, AFailureInVirtualTimeReachesWhoWaits) {
  OnRanks(2, {.alpha_us = 1000}, [](int rank, const GroupPtr& group) {
    VirtualTime time;
    Tensors x{Filled(0)};
    const std::string error = ErrorOf([&] {
      (rank == 0 ? group->allreduce(x) : group->broadcast(x))->wait();
    });
    EXPECT_THAT(error, HasSubstr("ranks call different collectives"));
  });
}

TEST(FakeWorldTest, RootedCollectives) {
  OnRanks(3, {}, [](int rank, const GroupPtr& group) {
    Tensors x{Filled(rank)};
    c10d::BroadcastOptions from_two;
    from_two.rootRank = 2;
    group->broadcast(x, from_two)->wait();
    EXPECT_TRUE(x[0].equal(Filled(2)));

    Tensors y{Filled(rank)};
    c10d::ReduceOptions to_one;
    to_one.rootRank = 1;
    group->reduce(y, to_one)->wait();
    EXPECT_TRUE(y[0].equal(Filled(rank == 1 ? 3 : rank)));

    Tensors z{Filled(rank)};
    std::vector<Tensors> gathered;
    if (rank == 0) gathered = {{Filled(-1), Filled(-1), Filled(-1)}};
    group->gather(gathered, z)->wait();
    for (int source = 0; rank == 0 && source < 3; ++source) {
      EXPECT_TRUE(gathered[0][source].equal(Filled(source)));
    }

    std::vector<Tensors> slices;
    if (rank == 0) slices = {{Filled(5), Filled(6), Filled(7)}};
    Tensors slice{Filled(-1)};
    group->scatter(slice, slices)->wait();
    EXPECT_TRUE(slice[0].equal(Filled(5 + rank)));
  });
}

TEST(FakeWorldTest, GatherScatterAndTranspose) {
  OnRanks(2, {}, [](int rank, const GroupPtr& group) {
    Tensor gathered = at::zeros(4), own = Filled(rank);
    group->_allgather_base(gathered, own)->wait();
    EXPECT_TRUE(gathered.equal(at::cat({Filled(0), Filled(1)})));

    Tensor slice = at::zeros(1), input = at::arange(2) + 10.0 * rank;
    group->_reduce_scatter_base(slice, input)->wait();
    EXPECT_EQ(slice.item<double>(), 10 + 2 * rank);

    Tensor transposed = at::zeros(2);
    Tensor row = at::arange(2).to(torch::kFloat) + 10 * rank;
    std::vector<int64_t> equal;
    group->alltoall_base(transposed, row, equal, equal)->wait();
    EXPECT_TRUE(transposed.equal(torch::tensor({0.f + rank, 10.f + rank})));
  });
}

// One rank passes the sizes of its parts, which may be equal.
TEST(FakeWorldTest, WholeBuffersMeetBuffersInParts) {
  for (const int in_parts : {-1, 0, 2}) {
    OnRanks(3, {}, [&](int rank, const GroupPtr& group) {
      std::vector<int64_t> sizes;
      if (rank == in_parts) sizes = {2, 2, 2};
      Tensor received = at::zeros(6), sent = at::arange(6.f) + 10 * rank;
      group->alltoall_base(received, sent, sizes, sizes)->wait();
      const Tensor own = at::arange(2.f) + 2 * rank;
      EXPECT_TRUE(received.equal(at::cat({own, own + 10, own + 20})))
          << received;
    });
  }
}

TEST(FakeWorldTest, MessagesArriveInOrderWhicheverSideIsFirst) {
  OnRanks(2, {.alpha_us = 500}, [](int rank, const GroupPtr& group) {
    const int peer = 1 - rank;
    Tensors first{at::zeros(2)}, second{at::zeros(2)};
    auto receiving = group->recv(first, peer, 0);
    for (int i = 1; i <= 2; ++i) {
      Tensors message{Filled(10 * rank + i)};
      group->send(message, peer, 0)->wait();
    }
    receiving->wait();
    group->recv(second, peer, 0)->wait();
    EXPECT_TRUE(first[0].equal(Filled(10 * peer + 1)));
    EXPECT_TRUE(second[0].equal(Filled(10 * peer + 2)));
  });
}

TEST(FakeWorldTest, TheLatestRankAndTheCostDecideTheTime) {
  const auto start = steady_clock::now();
  OnRanks(3, {.alpha_us = 2000, .straggler_rank = 1, .straggler_us = 5000},
          [&](int rank, const GroupPtr& group) {
            if (rank == 2) std::this_thread::sleep_for(milliseconds(4));
            group->barrier()->wait();
            EXPECT_GE(steady_clock::now() - start, milliseconds(7));
          });
}

TEST(FakeWorldTest, TheTailIsOfTheSameCollectiveOnAllRanks) {
  OnRanks(2, {.tail_every = 2, .tail_us = 10000},
          [](int, const GroupPtr& group) {
            for (int pair = 0; pair < 2; ++pair) {
              group->barrier()->wait();
              const auto start = steady_clock::now();
              group->barrier()->wait();
              EXPECT_GE(steady_clock::now() - start, milliseconds(10));
            }
          });
}

TEST(FakeWorldTest, DifferentCollectivesFailOnAllRanksNamingBoth) {
  OnRanks(2, {}, [](int rank, const GroupPtr& group) {
    Tensors x{Filled(1)};
    const std::string error = ErrorOf([&] {
      (rank == 0 ? group->allreduce(x) : group->broadcast(x))->wait();
    });
    EXPECT_THAT(error, HasSubstr("rank 0 all_reduce of 2 Float"));
    EXPECT_THAT(error, HasSubstr("rank 1 broadcast root 0 of 2 Float"));
  });
}

TEST(FakeWorldTest, DifferentShapesFailOnAllRanks) {
  OnRanks(2, {}, [](int rank, const GroupPtr& group) {
    Tensors x{Filled(1, 2 + rank)};
    EXPECT_THAT(ErrorOf([&] { group->allreduce(x)->wait(); }),
                HasSubstr("rank 0 has [2] Float, rank 1 has [3] Float"));
  });
}

TEST(FakeWorldTest, AMissingRankIsNamedAfterTheTimeout) {
  OnRanks(3, {.timeout = milliseconds(50)},
          [](int rank, const GroupPtr& group) {
            if (rank == 1) return;
            Tensors x{Filled(1)};
            EXPECT_THAT(ErrorOf([&] { group->allreduce(x)->wait(); }),
                        HasSubstr("gave up waiting for rank 1"));
            EXPECT_THAT(ErrorOf([&] { group->recv(x, 1, 4)->wait(); }),
                        HasSubstr("recv, tag 4, gave up waiting for rank 1"));
          });
}

TEST(FakeWorldTest, ALateRankLearnsThatTheOthersGaveUp) {
  FakeWorld world(2, {.timeout = milliseconds(10)});
  auto early = MakeFakeProcessGroup(world.backend(0));
  auto late = MakeFakeProcessGroup(world.backend(1));
  EXPECT_THAT(ErrorOf([&] { early->barrier()->wait(); }),
              HasSubstr("waiting for rank 1"));
  EXPECT_THAT(ErrorOf([&] { late->barrier()->wait(); }),
              HasSubstr("waiting for rank 1"));
}

TEST(FakeWorldTest, EndsWithCallsInFlight) {
  c10::intrusive_ptr<c10d::Work> unmatched, costly;
  {
    FakeWorld world(2, {.alpha_us = 3.6e9});
    auto zero = MakeFakeProcessGroup(world.backend(0));
    auto one = MakeFakeProcessGroup(world.backend(1));
    Tensors x{Filled(1)}, y{Filled(1)};
    costly = zero->allreduce(x);
    one->allreduce(y);
    unmatched = zero->allreduce(x);
  }
  costly->wait();
  EXPECT_THAT(ErrorOf([&] { unmatched->wait(); }), HasSubstr("rank 1"));
}

TEST(FakeTimelineTest, WorksAtOnceAndAnnouncesNotBeforeTheTime) {
  FakeTimeline timeline;
  std::promise<Clock::time_point> announced;
  const auto start = Clock::now();
  Clock::time_point worked{};
  timeline.Schedule([&] { worked = Clock::now(); }, start + milliseconds(20),
                    [&] { announced.set_value(Clock::now()); });
  const auto announced_at = announced.get_future().get();
  EXPECT_GE(announced_at, start + milliseconds(20));
  EXPECT_LE(worked, announced_at);
}

TEST(FakeTimelineTest, AnnouncesInOrderOfTime) {
  std::vector<int> order;
  std::promise<void> last;
  FakeTimeline timeline;
  const auto now = Clock::now();
  timeline.Schedule([] {}, now + milliseconds(30),
                    [&] {
                      order.push_back(3);
                      last.set_value();
                    });
  timeline.Schedule([] {}, now + milliseconds(5), [&] { order.push_back(1); });
  timeline.Schedule([] {}, now + milliseconds(5), [&] { order.push_back(2); });
  last.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(FakeTimelineTest, EndsWithoutWaitingForTheFuture) {
  bool announced = false;
  {
    FakeTimeline timeline;
    timeline.Schedule([] {}, Clock::now() + std::chrono::hours(1),
                      [&] { announced = true; });
  }
  EXPECT_TRUE(announced);
}

TEST(FakeTimelineTest, MayBeDestroyedByItsOwnCallback) {
  auto timeline = std::make_shared<FakeTimeline>();
  std::promise<void> done;
  FakeTimeline& alias = *timeline;
  alias.Schedule([] {}, Clock::now() + milliseconds(5),
                 [&done, owner = std::move(timeline)]() mutable {
                   owner.reset();
                   done.set_value();
                 });
  done.get_future().wait();
}

}  // namespace
}  // namespace rankwise
