#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ATen/TensorOperators.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// Runs ranks as threads over the fake backend at no cost.
void OnFakeRanks(int world_size,
                 const std::function<void(const GroupPtr&)>& body) {
  FakeWorld world(world_size, {});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string error =
          ErrorOf([&] { body(MakeFakeProcessGroup(world.backend(rank))); });
      EXPECT_EQ(error, "") << "on rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

const TrafficMatrix& Traffic(int world_size) {
  static const auto* const matrices = [] {
    auto* all = new std::vector<TrafficMatrix>;
    for (int n = 0; n <= 4; ++n) all->push_back(TrafficMatrix::Skewed(1.5, n));
    return all;
  }();
  return matrices->at(world_size);
}

Call CallOf(const Collective& collective, const GroupPtr& group,
            int64_t granules) {
  Call call;
  call.rank = group->getRank();
  call.world_size = group->getSize();
  call.count = granules * CountFor(collective, 0, call.dtype, call.world_size);
  call.traffic = &Traffic(call.world_size);
  return call;
}

Buffers Filled(const Collective& collective, const Call& call) {
  Buffers buffers = collective.make(call);
  collective.fill(call, buffers);
  return buffers;
}

void RunOnce(const Collective& collective, const GroupPtr& group,
             const Call& call, Buffers& buffers) {
  Works works;
  collective.start(*group, call, buffers, works);
  for (const auto& work : works) work->wait();
}

std::string Described(const Collective& collective, const Call& call) {
  return absl::StrCat(collective.name, " of ", call.count, " ",
                      DtypeName(call.dtype), " ", OpName(call.op), " root ",
                      call.root, call.in_place ? " in place" : "", ", rank ",
                      call.rank, " of ", call.world_size);
}

// Returns the calls of a collective with all types, ops, roots and places.
std::vector<Call> Combinations(const Collective& collective,
                               const GroupPtr& group, int64_t granules) {
  std::vector<Call> calls;
  for (const c10::ScalarType dtype : AllDtypes()) {
    for (const ReduceOp op : AllOps()) {
      for (const bool in_place : {false, true}) {
        Call call = CallOf(collective, group, granules);
        call.dtype = dtype;
        call.op = op;
        call.in_place = in_place;
        if (collective.rooted) call.root = granules % call.world_size;
        if (!collective.reduces && op != ReduceOp::SUM) continue;
        if (!collective.has_elements && dtype != at::kFloat) continue;
        calls.push_back(call);
      }
    }
  }
  return calls;
}

// Results of the combinations on one rank.
struct Tally {
  std::set<std::string> refusals;
  int refused = 0;
  int correct = 0;
};

void RunAll(const GroupPtr& group, int64_t granules, Tally& tally) {
  for (const Collective* collective : AllCollectives()) {
    for (const Call& call : Combinations(*collective, group, granules)) {
      const absl::Status status = CheckCall(*collective, call);
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        tally.refusals.insert(std::string(status.message()));
        ++tally.refused;
        continue;
      }
      Buffers buffers = Filled(*collective, call);
      RunOnce(*collective, group, call, buffers);
      const auto wrong = collective->check(call, buffers);
      EXPECT_FALSE(wrong) << Described(*collective, call) << ": element "
                          << wrong->index << " is " << wrong->got << ", not "
                          << wrong->expected << "; " << wrong->total
                          << " are wrong";
      tally.correct += !wrong;
    }
  }
}

// Three reductions with 7 x 5 - 3 combinations of type and op (no averages of
// integers) and four other collectives with 7 types, both in and out of place;
// five more that only run out of place, three of which need a second rank; and
// the barrier.
int ExpectedCorrect(int world_size) {
  return 2 * (3 * (7 * 5 - 3) + 4 * 7) + (world_size > 1 ? 5 : 2) * 7 + 1;
}
constexpr int kCombinations = 2 * (3 * 7 * 5 + 9 * 7 + 1);

void ExpectComplete(const Tally& tally, int world_size, int rounds) {
  EXPECT_EQ(tally.correct, rounds * ExpectedCorrect(world_size));
  EXPECT_EQ(tally.correct + tally.refused, rounds * kCombinations);
  for (const char* expected :
       {"all_reduce of int32 with op avg: the average of integers is not "
        "an integer",
        "reduce_scatter of uint8 with op avg", "all_to_all cannot run in place",
        "barrier has no buffers"}) {
    EXPECT_THAT(tally.refusals, testing::Contains(HasSubstr(expected)));
  }
}

class EveryCombination : public testing::TestWithParam<int> {};

TEST_P(EveryCombination, IsRefusedOrCorrectOverGloo) {
  const int world_size = GetParam();
  OnRanks(world_size, [&](Communicator& comm) {
    Tally tally;
    // An odd count, and one of several periods of the pattern.
    for (const int64_t granules : {3, 8209}) {
      RunAll(comm.process_group(), granules, tally);
    }
    ExpectComplete(tally, world_size, 2);
  });
}

TEST_P(EveryCombination, IsRefusedOrCorrectOverTheFakeBackend) {
  OnFakeRanks(GetParam(), [&](const GroupPtr& group) {
    Tally tally;
    RunAll(group, /*granules=*/5, tally);
    ExpectComplete(tally, GetParam(), 1);
  });
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, EveryCombination,
                         testing::Values(1, 2, 3, 4));

TEST(CollectivesTest, ACorruptedElementIsFound) {
  std::mutex mutex;
  std::set<std::string> found;
  OnFakeRanks(4, [&](const GroupPtr& group) {
    for (const Collective* collective : AllCollectives()) {
      const Call call = CallOf(*collective, group, 1001);
      Buffers buffers = Filled(*collective, call);
      RunOnce(*collective, group, call, buffers);
      const bool root_only = collective->rooted &&
                             std::string(collective->name) != "broadcast" &&
                             std::string(collective->name) != "scatter";
      if (!collective->has_elements || (root_only && call.rank != call.root) ||
          (std::string(collective->name) == "ping_pong" && call.rank > 1)) {
        EXPECT_FALSE(collective->check(call, buffers));
        continue;
      }
      const int64_t index = buffers.output.numel() / 2;
      const double expected = buffers.output[index].item<double>();
      buffers.output[index].fill_(252);
      const auto wrong = collective->check(call, buffers);
      ASSERT_TRUE(wrong) << Described(*collective, call);
      EXPECT_EQ(wrong->index, index) << Described(*collective, call);
      EXPECT_EQ(wrong->expected, expected) << Described(*collective, call);
      EXPECT_EQ(wrong->got, 252);
      EXPECT_EQ(wrong->total, 1);
      const std::lock_guard<std::mutex> lock(mutex);
      found.insert(collective->name);
    }
  });
  EXPECT_EQ(found.size(), 12u);
}

TEST(CollectivesTest, ACallThatDoesNothingIsFound) {
  std::mutex mutex;
  std::set<std::string> found;
  OnFakeRanks(4, [&](const GroupPtr& group) {
    for (const Collective* collective : AllCollectives()) {
      for (const bool in_place : {false, true}) {
        Call call = CallOf(*collective, group, 64);
        call.in_place = in_place;
        if (!CheckCall(*collective, call).ok()) continue;
        const Buffers buffers = Filled(*collective, call);
        if (!collective->check(call, buffers)) continue;
        const std::lock_guard<std::mutex> lock(mutex);
        found.insert(absl::StrCat(collective->name, in_place));
      }
    }
  });
  EXPECT_EQ(found.size(), 7u * 2 + 5);
}

TEST(CollectivesTest, SeveralCallsInFlightAreAllCorrect) {
  OnRanks(3, [](Communicator& comm) {
    const GroupPtr& group = comm.process_group();
    for (const Collective* collective : AllCollectives()) {
      const Call call = CallOf(*collective, group, 5000);
      std::vector<Buffers> buffers;
      for (int i = 0; i < 4; ++i) {
        buffers.push_back(Filled(*collective, call));
      }
      Works works;
      for (Buffers& each : buffers) {
        collective->start(*group, call, each, works);
      }
      for (const auto& work : works) work->wait();
      for (const Buffers& each : buffers) {
        EXPECT_FALSE(collective->check(call, each)) << collective->name;
      }
    }
  });
}

TEST(CollectivesTest, RefusesMissingOrOtherTrafficMatrices) {
  const Collective& collective = **FindCollective("all_to_all_v");
  Call call;
  call.count = 4;
  call.world_size = 3;
  EXPECT_EQ(CheckCall(collective, call).message(),
            "all_to_all_v needs a traffic matrix of the amounts between ranks");
  call.traffic = &Traffic(2);
  EXPECT_EQ(CheckCall(collective, call).message(),
            "all_to_all_v over 3 ranks with a traffic matrix of 2: give one of "
            "as many ranks");
  call.traffic = &Traffic(3);
  EXPECT_TRUE(CheckCall(collective, call).ok());
}

TEST(CollectivesTest, BusFactorsAreThoseOfNcclTests) {
  auto factor = [](const char* name) {
    Call call;
    call.count = 4;
    call.world_size = 4;
    call.traffic = &Traffic(4);
    return (*FindCollective(name))->bus_factor(call);
  };
  EXPECT_EQ(factor("all_reduce"), 1.5);
  for (const char* name :
       {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}) {
    EXPECT_EQ(factor(name), 0.75) << name;
  }
  for (const char* name : {"broadcast", "reduce", "send_recv", "ping_pong"}) {
    EXPECT_EQ(factor(name), 1) << name;
  }
  EXPECT_EQ(factor("bidirectional"), 2);
}

TEST(CollectivesTest, NamesFindTheirEntries) {
  EXPECT_EQ(AllCollectives().size(), 13u);
  for (const Collective* collective : AllCollectives()) {
    EXPECT_EQ(FindCollective(collective->name).value(), collective);
  }
  const auto unknown = FindCollective("allreduce");
  EXPECT_TRUE(absl::IsInvalidArgument(unknown.status()));
  EXPECT_EQ(unknown.status().message(),
            "unknown collective 'allreduce'; there are all_reduce, all_gather, "
            "reduce_scatter, broadcast, reduce, all_to_all, all_to_all_v, "
            "gather, scatter, send_recv, ping_pong, bidirectional, barrier");
}

}  // namespace
}  // namespace rankwise::comm_bench
