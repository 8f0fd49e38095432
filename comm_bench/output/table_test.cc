#include "comm_bench/output/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

Row ExampleRow() {
  Row row;
  row.record.collective = "all_reduce";
  row.record.layer = "c10d";
  row.record.bytes = 4096;
  row.record.count = 1024;
  row.record.dtype = "float32";
  row.record.op = "sum";
  row.time = {100,      2,        40e-6, 50e-6, 75e-6,
              123.4e-6, 12345e-6, 49e-6, 52e-6, 1.5e-6};
  row.algbw = 0.08192;
  row.busbw = 0.08192;
  row.wrong = 0;
  row.end = Series::End::kPrecise;
  return row;
}

Row LargeRow() {
  Row row = ExampleRow();
  row.record.bytes = 1 << 30;
  row.record.count = 1 << 28;
  row.record.dtype = "bfloat16";
  row.record.op = "prod";
  row.record.root = 12;
  row.record.in_place = true;
  row.time = {17, 0, 1.25, 1.5, 2, 2.5, 9.9, 1.4, 1.75, 0.5};
  row.algbw = 123.456;
  row.busbw = 1234.56;
  row.wrong = -1;
  row.end = Series::End::kOutOfTime;
  return row;
}

Row BarrierRow() {
  Row row;
  row.record.collective = "barrier";
  row.time = {20, 0, 1e-6, 2e-6, 3e-6, 3e-6, 4e-6, 2e-6, 2e-6, 0};
  return row;
}

TEST(Table, IsTheFamiliarOne) {
  Table table(Across::kSlowest);
  std::string text = table.Add(ExampleRow());
  text += table.Add(LargeRow());
  EXPECT_EQ(text, R"(
# all_reduce: median time of a call, of each iteration's slowest rank
#      size     count     type   op root place |     time   +-CI     min     p95     p99     max |   algbw   busbw |    skew late wrong
#         B  elements                          |       us      %      us      us      us      us |    GB/s    GB/s |      us
       4096      1024  float32  sum    -   out |    50.00    4.0   40.00   75.00   123.4   12345 |   0.082   0.082 |    1.50    2     0
 1073741824 268435456 bfloat16 prod   12    in |  1500000~  16.7 1250000 2000000 2500000 9900000 |  123.46  1234.6 |  500000    0     -
)");
}

TEST(Table, ARowWithoutElementsHasNoSizes) {
  Table table(Across::kMakespan);
  EXPECT_EQ(table.Add(BarrierRow()), R"(
# barrier: median time of a call, from the first rank's start to the last rank's end
#      size     count     type   op root place |     time   +-CI     min     p95     p99     max |   algbw   busbw |    skew late wrong
#         B  elements                          |       us      %      us      us      us      us |    GB/s    GB/s |      us
          -         -        -    -    -     - |     2.00    0.0    1.00    3.00    3.00    4.00 |       -       - |    0.00    0     -
)");
}

TEST(Table, EveryCollectiveHasOneHeader) {
  Table table(Across::kSlowest);
  EXPECT_THAT(table.Add(ExampleRow()), HasSubstr("# all_reduce:"));
  EXPECT_THAT(table.Add(LargeRow()), Not(HasSubstr("#")));
  EXPECT_THAT(table.Add(BarrierRow()), HasSubstr("# barrier:"));
}

TEST(Table, LinesFitAndAlign) {
  Table table(Across::kTransfer);
  std::string text = table.Add(ExampleRow());
  text += table.Add(LargeRow());
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 7u);  // the first and the last are empty
  for (int i : {3, 4, 5}) {
    EXPECT_LE(lines[i].size(), 135u);
    EXPECT_EQ(lines[i].find('|'), lines[2].find('|')) << lines[i];
    EXPECT_EQ(lines[i].rfind('|'), lines[2].rfind('|')) << lines[i];
  }
}

TEST(Table, GroupsAndLayersAreRemarks) {
  Table table(Across::kSlowest);
  Row row = ExampleRow();
  row.record.ranks = {1, 3};
  row.record.layer = "backend";
  EXPECT_THAT(table.Add(row), EndsWith("  layer backend  ranks 1,3\n"));
}

TEST(Table, AGroupAloneAndAllAtOnceAreRemarks) {
  Table table(Across::kSlowest);
  Row row = ExampleRow();
  row.record.ranks = {0, 2};
  row.record.concurrent_groups = 1;
  EXPECT_THAT(table.Add(row), EndsWith("  ranks 0,2 alone\n"));
  row.record.concurrent_groups = 4;
  row.contention = {1.5, std::nan(""), std::nan("")};
  EXPECT_THAT(table.Add(row),
              EndsWith("  ranks 0,2 of 4 groups, 1.50 x alone\n"));
  row.contention = {1.5, 1.25, 2};
  EXPECT_THAT(table.Add(row), EndsWith(", 1.50 x alone (1.25 to 2.00)\n"));
}

TEST(Table, WithoutSamplesThereIsNoTime) {
  Table table(Across::kSlowest);
  Row row = ExampleRow();
  row.time = {};
  row.time.late = 3;
  row.algbw = row.busbw = 0;
  row.end = Series::End::kInterrupted;
  EXPECT_THAT(table.Add(row), HasSubstr("-!     -       -       -"));
  EXPECT_THAT(table.Legend(), HasSubstr("# ! interrupted"));
}

TEST(Table, TheLegendExplainsTheMarksThatOccurred) {
  Table table(Across::kSlowest);
  table.Add(ExampleRow());
  EXPECT_EQ(table.Legend(), "");
  table.Add(LargeRow());
  EXPECT_THAT(table.Legend(), HasSubstr("# ~ time or iterations ran out"));
  EXPECT_THAT(table.Legend(), Not(HasSubstr("# !")));
}

TEST(FormatFacts, AlignsValues) {
  EXPECT_EQ(FormatFacts({{"host", "node-3"}, {"backend", "gloo"}}),
            "# host     node-3\n"
            "# backend  gloo\n");
  EXPECT_EQ(FormatFacts({}), "");
}

TEST(Table, SaysHowTheCallsWereMadeAndWhatNcclChose) {
  Row row = ExampleRow();
  row.record.layer = "nccl";
  row.record.timing = "events";
  row.record.graph = row.record.registered = true;
  row.record.algorithm = "RING";
  row.record.protocol = "LL128";
  row.peer_share = 0.837;
  Table table(Across::kSlowest);
  const std::string text = table.Add(row);
  EXPECT_THAT(text, HasSubstr("slowest rank; nccl.h; timed by events; replayed "
                              "from a CUDA graph; registered buffers\n"));
  EXPECT_THAT(text, EndsWith("  RING LL128  84 % of a peer copy\n"));
}

}  // namespace
}  // namespace rankwise::comm_bench
