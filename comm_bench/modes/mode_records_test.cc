#include "comm_bench/modes/ladder.h"
#include "comm_bench/modes/pair_matrix.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "records/record.h"
#include "records/record_json.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;

TEST(ModeRecordsTest, APairsRoundTripsAreTwoTrips) {
  const CollectiveRecord record =
      RoundTrips(/*rank=*/1, /*peer=*/3, /*bytes=*/8, {0.5, 0.25, 1});
  EXPECT_THAT(record.ranks, ElementsAre(1, 3));
  EXPECT_THAT(record.seconds, ElementsAre(0.5, 0.25, 1));
  EXPECT_THAT(record.start_seconds, ElementsAre(0, 0.5, 0.75));
  EXPECT_EQ(record.calls_per_iteration, 2);
  EXPECT_EQ(record.group_size, 2);
  EXPECT_EQ(record.bus_factor, 1);
  EXPECT_EQ(record.end, "counted");
  EXPECT_TRUE(ParseRecord(ToJsonLine(record)).ok());
}

TEST(ModeRecordsTest, ARungIsALayer) {
  LadderResult ladder;
  ladder.bytes = 4096;
  LadderRung rung;
  rung.name = "reducer";
  const CallDescription call = DescribeRung(ladder, rung);
  EXPECT_EQ(call.collective, "all_reduce");
  EXPECT_EQ(call.layer, "reducer");
  EXPECT_EQ(call.count, 1024);
  EXPECT_EQ(call.bytes, 4096);
  EXPECT_EQ(call.timing, "host");
}

}  // namespace
}  // namespace rankwise::comm_bench
