#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Costs = std::vector<double>;

double CostliestStage(const Costs& costs, const Cuts& cuts) {
  double costliest = 0;
  size_t begin = 0;
  for (size_t stage = 0; stage <= cuts.size(); ++stage) {
    const size_t end = stage < cuts.size() ? cuts[stage] : costs.size();
    EXPECT_LT(begin, end) << "a stage is empty";
    costliest = std::max(costliest, std::accumulate(costs.begin() + begin,
                                                    costs.begin() + end, 0.0));
    begin = end;
  }
  return costliest;
}

// Returns the least cost of the costliest stage by trying all cuts.
double ByTrial(const Costs& costs, size_t stages, Cuts cuts = {}) {
  if (cuts.size() + 1 == stages) return CostliestStage(costs, cuts);
  double best = std::numeric_limits<double>::infinity();
  const size_t missing = stages - 1 - cuts.size();
  const size_t first = cuts.empty() ? 1 : cuts.back() + 1;
  cuts.push_back(first);
  for (; cuts.back() + missing <= costs.size(); ++cuts.back()) {
    best = std::min(best, ByTrial(costs, stages, cuts));
  }
  return best;
}

std::string RefusalOf(const absl::StatusOr<Cuts>& cuts) {
  EXPECT_TRUE(absl::IsInvalidArgument(cuts.status())) << cuts.status();
  return std::string(cuts.status().message());
}

TEST(BalanceLayersTest, EqualLayersMakeEqualStages) {
  EXPECT_THAT(*BalanceLayers(Costs(8, 1.0), 4), ElementsAre(2, 4, 6));
  EXPECT_THAT(*BalanceLayers(Costs(8, 1.0), 1), IsEmpty());
  EXPECT_THAT(*BalanceLayers(Costs(3, 0.0), 3), ElementsAre(1, 2));
}

TEST(BalanceLayersTest, AnExpensiveLayerStandsAlone) {
  EXPECT_THAT(*BalanceLayers(Costs{1, 1, 9, 1, 1}, 3), ElementsAre(2, 3));
  EXPECT_THAT(*BalanceLayers(Costs{9, 1, 1, 1}, 2), ElementsAre(1));
}

TEST(BalanceLayersTest, IsAsGoodAsTryingAllCuts) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    Costs costs(1 + random() % 9);
    for (double& cost : costs) cost = random() % 5;
    const size_t stages = 1 + random() % costs.size();
    const absl::StatusOr<Cuts> cuts = BalanceLayers(costs, stages);
    ASSERT_TRUE(cuts.ok()) << cuts.status();
    ASSERT_EQ(cuts->size(), stages - 1);
    EXPECT_EQ(CostliestStage(costs, *cuts), ByTrial(costs, stages))
        << testing::PrintToString(costs) << " into " << stages;
  }
}

TEST(BalanceLayersTest, ManyLayersTakeNoQuadraticTime) {
  const absl::StatusOr<Cuts> cuts = BalanceLayers(Costs(200'000, 0.5), 16);
  ASSERT_TRUE(cuts.ok()) << cuts.status();
  EXPECT_EQ(cuts->at(7), 100'000u);
}

TEST(BalanceLayersTest, RefusesMoreStagesThanLayersWithBothNumbers) {
  EXPECT_THAT(RefusalOf(BalanceLayers(Costs{1, 2}, 3)),
              HasSubstr("3 stages of a model with 2 layers"));
  EXPECT_THAT(RefusalOf(BalanceLayers({}, 1)), HasSubstr("with 0 layers"));
  EXPECT_THAT(RefusalOf(BalanceLayers(Costs{1}, 0)), HasSubstr("0 stages"));
}

TEST(BalanceLayersTest, RefusesCostsThatAreNone) {
  EXPECT_THAT(RefusalOf(BalanceLayers(Costs{1, -2, 3}, 2)),
              HasSubstr("the cost of layer 1 is -2"));
  EXPECT_THAT(RefusalOf(BalanceLayers(Costs{NAN, 1}, 2)),
              HasSubstr("the cost of layer 0 is nan"));
  EXPECT_THAT(RefusalOf(BalanceLayers(Costs{1, INFINITY}, 2)),
              HasSubstr("the cost of layer 1 is inf"));
  EXPECT_THAT(RefusalOf(BalanceLayers(Costs{1, 1e308, 1e308}, 2)),
              HasSubstr("the cost of layer 2 is 1e+308"));
}

TEST(ParseCutsTest, ReadsWhatIsWritten) {
  EXPECT_THAT(*ParseCuts("2,5", 8, 3), ElementsAre(2, 5));
  EXPECT_THAT(*ParseCuts(" 1, 7", 8, 3), ElementsAre(1, 7));
  EXPECT_THAT(*ParseCuts("", 8, 1), IsEmpty());
}

TEST(ParseCutsTest, RefusesACutOutsideTheModel) {
  EXPECT_THAT(RefusalOf(ParseCuts("2,8", 8, 3)),
              AllOf(HasSubstr("the cut 8 in '2,8' is outside the model"),
                    HasSubstr("layer 1 to 7")));
  EXPECT_THAT(RefusalOf(ParseCuts("0,2", 8, 3)), HasSubstr("the cut 0 in"));
  EXPECT_THAT(RefusalOf(ParseCuts("-1", 8, 2)), HasSubstr("the cut -1 in"));
}

TEST(ParseCutsTest, RefusesCutsThatDoNotAscend) {
  EXPECT_THAT(RefusalOf(ParseCuts("5,2", 8, 3)),
              HasSubstr("the cut 2 in '5,2' does not come after 5"));
  EXPECT_THAT(RefusalOf(ParseCuts("3,3", 8, 3)),
              HasSubstr("the cut 3 in '3,3' does not come after 3"));
}

TEST(ParseCutsTest, RefusesWhatIsNoNumber) {
  EXPECT_THAT(RefusalOf(ParseCuts("2,x", 8, 3)),
              HasSubstr("the cut 'x' in '2,x' is not a number"));
  EXPECT_THAT(RefusalOf(ParseCuts("2,", 8, 3)), HasSubstr("the cut '' in"));
  EXPECT_THAT(RefusalOf(ParseCuts("2.5", 8, 2)), HasSubstr("the cut '2.5' in"));
  EXPECT_THAT(RefusalOf(ParseCuts("99999999999999999999", 8, 2)),
              HasSubstr("is not a number"));
}

TEST(ParseCutsTest, RefusesTooFewAndTooMany) {
  EXPECT_THAT(RefusalOf(ParseCuts("2", 8, 3)),
              HasSubstr("'2' makes 2 stages, not 3: too few cuts"));
  EXPECT_THAT(RefusalOf(ParseCuts("2,5", 8, 2)),
              HasSubstr("makes 3 stages, not 2: too many cuts"));
  EXPECT_THAT(RefusalOf(ParseCuts("", 8, 2)), HasSubstr("too few"));
  EXPECT_THAT(RefusalOf(ParseCuts("1,2", 2, 3)),
              HasSubstr("3 stages of a model with 2 layers"));
}

}  // namespace
}  // namespace rankwise
