#include "records/run_id.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(RunId, StartsWithTheTimeInUtc) {
  const std::string id = NewRunId(absl::FromUnixSeconds(0));
  EXPECT_EQ(id.substr(0, 16), "19700101-000000-");
  EXPECT_EQ(id.size(), 24u);
}

TEST(RunId, TwoRunsOfOneSecondDiffer) {
  const absl::Time now = absl::FromUnixSeconds(0);
  EXPECT_NE(NewRunId(now), NewRunId(now));
}

}  // namespace
}  // namespace rankwise
