#include "parallel/comm/gather_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
