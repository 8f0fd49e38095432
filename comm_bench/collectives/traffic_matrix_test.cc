#include "comm_bench/collectives/traffic_matrix.h"

#include <fstream>
#include <numeric>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FileOf(const std::string& text) {
  const std::string path = testing::TempDir() + "/matrix.txt";
  std::ofstream(path) << text;
  return path;
}

TrafficMatrix Matrix(const std::string& text, int world_size) {
  auto matrix = TrafficMatrix::Read(FileOf(text), world_size);
  EXPECT_TRUE(matrix.ok()) << matrix.status();
  return *std::move(matrix);
}

std::string RefusalOf(const std::string& text, int world_size) {
  const auto matrix = TrafficMatrix::Read(FileOf(text), world_size);
  EXPECT_TRUE(absl::IsInvalidArgument(matrix.status())) << matrix.status();
  return std::string(matrix.status().message());
}

TEST(TrafficMatrixTest, ReadsCommasBlanksAndComments) {
  const TrafficMatrix matrix = Matrix(
      "# from rank 0\n"
      "1, 3\n"
      "\n"
      " 2\t2 # from rank 1\r\n",
      2);
  EXPECT_EQ(matrix.world_size(), 2);
  EXPECT_THAT(matrix.SendCounts(0, 100), ElementsAre(25, 75));
  EXPECT_THAT(matrix.SendCounts(1, 100), ElementsAre(50, 50));
  EXPECT_THAT(matrix.ReceiveCounts(0, 100), ElementsAre(25, 50));
  EXPECT_THAT(matrix.ReceiveCounts(1, 100), ElementsAre(75, 50));
}

TEST(TrafficMatrixTest, TheBusiestRankSendsOrReceivesMost) {
  EXPECT_DOUBLE_EQ(TrafficMatrix::Skewed(0, 4).BusiestShare(), 0.75);
  // Rank 0 keeps 0.48 of its data and receives 0.48 from each of three others;
  // the last rank, which keeps the least, sends 0.88.
  EXPECT_DOUBLE_EQ(TrafficMatrix::Skewed(1, 4).BusiestShare(), 3 * 0.48);
  // Only rank 0 sends: half to each of the others.
  EXPECT_DOUBLE_EQ(Matrix("0 1 1\n0 2 0\n0 0 2", 3).BusiestShare(), 1);
  EXPECT_DOUBLE_EQ(Matrix("1 0\n0 1", 2).BusiestShare(), 0);
}

TEST(TrafficMatrixTest, FractionsBalanceUpToRounding) {
  const TrafficMatrix matrix = Matrix("0.1 0.2 0.7\n0.7 0.1 0.2\n1 0 0", 3);
  EXPECT_THAT(matrix.SendCounts(1, 10), ElementsAre(7, 1, 2));
  EXPECT_THAT(matrix.SendCounts(2, 10), ElementsAre(10, 0, 0));
}

TEST(TrafficMatrixTest, SaysWhatIsNoNumberAndWhere) {
  EXPECT_THAT(RefusalOf("1 1\n1 x1", 2),
              AllOf(HasSubstr("matrix.txt:2: \"x1\" is not a number")));
  EXPECT_THAT(RefusalOf("1 nan\n1 1", 2),
              HasSubstr(":1: \"nan\" is not a number"));
  EXPECT_THAT(RefusalOf("1 1\ninf 1", 2),
              HasSubstr(":2: \"inf\" is not a number"));
}

TEST(TrafficMatrixTest, RefusesNegativeNumbers) {
  EXPECT_THAT(RefusalOf("# first\n1 1\n3 -1", 2),
              HasSubstr(":3: -1 is negative"));
  // A vertical tab is part of the number, but not of the message.
  EXPECT_THAT(RefusalOf("1 1\n3 \v-1", 2), HasSubstr(":2: -1 is negative"));
}

TEST(TrafficMatrixTest, RefusesAnotherNumberOfColumns) {
  EXPECT_THAT(RefusalOf("1 1\n2", 2), HasSubstr(":2: 1 column for 2 ranks"));
  EXPECT_THAT(RefusalOf("1 1 1\n", 2), HasSubstr(":1: 3 columns for 2 ranks"));
}

TEST(TrafficMatrixTest, RefusesAnotherNumberOfRows) {
  EXPECT_THAT(RefusalOf("1 1 1\n1 1 1\n", 3),
              HasSubstr(":2: the file ends after 2 rows, for 3 ranks"));
  EXPECT_THAT(RefusalOf("1\n1\n", 1),
              HasSubstr(":2: a row too many for 1 rank;"));
  EXPECT_THAT(RefusalOf("", 2), HasSubstr("ends after 0 rows"));
}

TEST(TrafficMatrixTest, RefusesRowsThatDoNotBalance) {
  EXPECT_THAT(RefusalOf("1 3\n2 3\n", 2),
              HasSubstr(":2: the matrix does not balance: this row's sum is 5, "
                        "the first row's 4"));
  EXPECT_THAT(RefusalOf("0 0\n0 0\n", 2), HasSubstr(":1: the row's sum is 0"));
  EXPECT_THAT(RefusalOf("1e308 1e308\n1 1", 2),
              HasSubstr(":1: the row's sum is inf"));
}

TEST(TrafficMatrixTest, MayComeFromAnotherSystem) {
  EXPECT_THAT(
      Matrix("\xef\xbb\xbf# from, to\r\n1,3\r\n3,1\r\n", 2).SendCounts(0, 4),
      ElementsAre(1, 3));
}

TEST(TrafficMatrixTest, AFileThatIsNotThereIsNamed) {
  const auto matrix = TrafficMatrix::Read("/nonexistent/matrix", 2);
  EXPECT_TRUE(absl::IsInvalidArgument(matrix.status()));
  EXPECT_EQ(matrix.status().message(),
            "cannot read the traffic matrix /nonexistent/matrix: No such file "
            "or directory");
}

TEST(TrafficMatrixTest, TheLargestRemaindersGetWhatIsLeft) {
  const TrafficMatrix matrix = Matrix("1 2 4\n4 2 1\n1 1 5\n", 3);
  // Shares of 10: 1.43, 2.86, 5.71.
  EXPECT_THAT(matrix.SendCounts(0, 10), ElementsAre(1, 3, 6));
  EXPECT_THAT(matrix.SendCounts(0, 1), ElementsAre(0, 0, 1));
}

TEST(TrafficMatrixTest, NoSkewIsUniformAndLowRanksComeFirstAmongEquals) {
  const TrafficMatrix matrix = TrafficMatrix::Skewed(0, 4);
  EXPECT_THAT(matrix.SendCounts(3, 8), Each(2));
  EXPECT_THAT(matrix.SendCounts(3, 6), ElementsAre(2, 2, 1, 1));
}

TEST(TrafficMatrixTest, SkewGivesLowRanksMore) {
  const TrafficMatrix matrix = TrafficMatrix::Skewed(1, 4);
  EXPECT_THAT(matrix.SendCounts(0, 2500), ElementsAre(1200, 600, 400, 300));
  EXPECT_THAT(matrix.ReceiveCounts(0, 2500), Each(1200));
}

TEST(TrafficMatrixTest, PartsAlwaysAddUp) {
  for (int world_size : {1, 2, 3, 7, 49, 100}) {
    const auto matrix = TrafficMatrix::Skewed(0.7, world_size);
    for (int64_t count : {0, 1, 5, 49, 4097, 1 << 24}) {
      const auto parts = matrix.SendCounts(0, count);
      EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), count);
    }
  }
}

}  // namespace
}  // namespace rankwise::comm_bench
