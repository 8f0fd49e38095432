#include "parallel/comm/control.h"

#include <atomic>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ControlTest, GathersInOrderOfRank) {
  OnRanks(3, [](Communicator& communicator) {
    auto control = MakeGroupControl(communicator.process_group());
    EXPECT_EQ(control->rank(), communicator.rank());
    EXPECT_EQ(control->world_size(), 3);
    const double rank = communicator.rank();
    EXPECT_THAT(
        control->Gather({rank, 10 * rank}),
        ElementsAre(ElementsAre(0, 0), ElementsAre(1, 10), ElementsAre(2, 20)));
  });
}

TEST(ControlTest, NobodyLeavesABarrierBeforeAllAreThere) {
  std::atomic<int> arrived{0};
  OnRanks(2, [&](Communicator& communicator) {
    auto control = MakeGroupControl(communicator.process_group());
    ++arrived;
    control->Barrier();
    EXPECT_EQ(arrived, 2);
  });
}

TEST(ControlTest, MessagesKeepTheirOrder) {
  OnRanks(2, [](Communicator& communicator) {
    auto control = MakeGroupControl(communicator.process_group());
    const int peer = 1 - control->rank();
    for (const double value : {1.5, 2.5}) {
      if (control->rank() == 0) {
        control->Send(value, peer);
        EXPECT_EQ(control->Receive(peer), -value);
      } else {
        EXPECT_EQ(control->Receive(peer), value);
        control->Send(-value, peer);
      }
    }
  });
}

TEST(ControlTest, OneRankIsAlone) {
  OnRanks(1, [](Communicator& communicator) {
    auto control = MakeGroupControl(communicator.process_group());
    control->Barrier();
    EXPECT_THAT(control->Gather({7}), ElementsAre(ElementsAre(7)));
  });
}

TEST(GatherTextTest, TheFirstRankHasAllInOrder) {
  const std::string large(100'000, 'x');
  OnRanks(3, [&](Communicator& comm) {
    const std::string mine[] = {"first", "", large};
    const auto texts = GatherText(&comm, mine[comm.rank()]);
    if (comm.rank() == 0) {
      EXPECT_THAT(texts, ElementsAre("first", "", large));
    } else {
      EXPECT_THAT(texts, IsEmpty());
    }
  });
}

TEST(GatherTextTest, OneProcessHasItsOwn) {
  EXPECT_THAT(GatherText(nullptr, "alone"), ElementsAre("alone"));
}

}  // namespace
}  // namespace rankwise
