#include "comm_bench/peer_ceiling.h"

#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using Copies = std::vector<PeerCopy>;

TEST(PeerCeilingTest, TheSlowestPairIsTheCeiling) {
  const PeerCeiling ceiling = DescribePeerCopies(
      Copies{{0, 1, 300e9, true}, {1, 0, 45.2e9, false}, {0, 2, 200e9, true}});
  EXPECT_EQ(ceiling.bytes_per_second, 45.2e9);
  EXPECT_EQ(ceiling.text,
            "45.2 GB/s from GPU 1 to 0, the slowest of 3 pairs, through the "
            "host's memory");
}

TEST(PeerCeilingTest, SaysWhyThereIsNone) {
  EXPECT_EQ(DescribePeerCopies(Copies{}).text, "left out: one GPU");
  const PeerCeiling failed =
      DescribePeerCopies(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(failed.bytes_per_second, 0);
  EXPECT_EQ(failed.text, "left out: no memory");
}

}  // namespace
}  // namespace rankwise
