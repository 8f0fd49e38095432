#include "analysis/history/change_points.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::IsEmpty;

using Random = std::mt19937_64;

double Normal(Random& random) {
  return std::normal_distribution<double>()(random);
}

double Student3(Random& random) {
  return std::student_t_distribution<double>(3)(random) / std::sqrt(3);
}

std::vector<size_t> Places(const std::vector<ChangePoint>& found) {
  std::vector<size_t> places;
  for (const ChangePoint& change : found) places.push_back(change.at);
  return places;
}

TEST(FindChangePointsTest, FewValuesHaveNone) {
  EXPECT_THAT(FindChangePoints({}, 0.05), IsEmpty());
  EXPECT_THAT(FindChangePoints({1, 1.01, 2, 2.01}, 0.05), IsEmpty());
  EXPECT_THAT(FindChangePoints(std::vector<double>(20, 0.1), 0.05), IsEmpty());
}

TEST(FindChangePointsTest, ALevelThatComesAndGoes) {
  std::vector<double> values;
  for (int i = 0; i < 30; ++i)
    values.push_back((i < 10 || i >= 20 ? 0 : 0.1) + (i % 2 == 0 ? 0.01 : 0));
  EXPECT_EQ(Places(FindChangePoints(values, 0.05)),
            (std::vector<size_t>{10, 20}));
}

TEST(FindChangePointsTest, ALevelOfNoNoise) {
  EXPECT_EQ(Places(FindChangePoints({1, 1, 1, 1, 2, 2, 2, 2}, 0.05)),
            (std::vector<size_t>{4}));
}

TEST(FindChangePointsTest, OneValueIsNoLevel) {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) values.push_back(0.01 * (i % 3));
  values[12] = 5;
  EXPECT_THAT(FindChangePoints(values, 0.05), IsEmpty());
}

struct Case {
  const char* noise;
  double (*draw)(Random& random);
  size_t values;
};

class MadeSeries : public testing::TestWithParam<Case> {};

// The expected count, plus two standard deviations.
double Most(double share, int trials) {
  return share * trials + 2 * std::sqrt(share * (1 - share) * trials);
}

TEST_P(MadeSeries, FalseChangesAreNoMoreFrequentThanAlpha) {
  constexpr int kTrials = 1000;
  Random random(1);
  int alarms = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (size_t i = 0; i < GetParam().values; ++i)
      values.push_back(0.02 * GetParam().draw(random));
    alarms += !FindChangePoints(values, 0.05).empty();
  }
  EXPECT_LE(alarms, Most(0.05, kTrials));
  RecordProperty("alarms", alarms);
}

TEST_P(MadeSeries, AChangeOfATenthIsFound) {
  constexpr int kTrials = 1000;
  Random random(2);
  int found = 0, at_its_place = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const size_t change = GetParam().values / 2;
    std::vector<double> values;
    for (size_t i = 0; i < GetParam().values; ++i) {
      values.push_back((i < change ? 0 : std::log(1.1)) +
                       0.02 * GetParam().draw(random));
    }
    const std::vector<size_t> places = Places(FindChangePoints(values, 0.05));
    found += !places.empty();
    at_its_place += places == std::vector<size_t>{change};
  }
  EXPECT_GE(found, 0.9 * kTrials);
  EXPECT_GE(at_its_place, 0.8 * kTrials);
  RecordProperty("found", found);
  RecordProperty("at_its_place", at_its_place);
}

INSTANTIATE_TEST_SUITE_P(Noise, MadeSeries,
                         testing::Values(Case{"normal", Normal, 10},
                                         Case{"normal", Normal, 30},
                                         Case{"normal", Normal, 100},
                                         Case{"Student3", Student3, 10},
                                         Case{"Student3", Student3, 30},
                                         Case{"Student3", Student3, 100}));

}  // namespace
}  // namespace rankwise
