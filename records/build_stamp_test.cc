#include "records/build_stamp.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(ThisBuildStamp, IsUnknownInABinaryThatIsNotStamped) {
  const BuildStamp stamp = ThisBuildStamp();
  EXPECT_EQ(stamp.source_hash, "");
  EXPECT_EQ(stamp.git_commit, "");
  EXPECT_EQ(stamp.git_state, "unknown");
}

}  // namespace
}  // namespace rankwise
