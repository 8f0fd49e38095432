// Coverage of a cost's interval, from the records of comm_bench to the table
// and to estimates: launches differ, calls are correlated, one in 20 takes up
// to 11 times as long. RANKWISE_TRIALS=200 prints the table of
// docs/cost_model.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

bool IsComplete() { return std::getenv("RANKWISE_TRIALS") != nullptr; }

int Trials() {
  const char* trials = std::getenv("RANKWISE_TRIALS");
  return trials == nullptr ? 100 : std::atoi(trials);
}

double TrueSeconds(Growth law, double bytes, int64_t ranks) {
  return 1e-4 * AlphaGrowth(law, ranks) + 1e-9 * bytes * BetaGrowth(law, ranks);
}

struct Study {
  Growth law = Growth::kRing;
  std::vector<int64_t> measured = {2, 4};  // ranks
  int launches = 3;
  bool tail = false;  // heavy-tailed differences between launches
};

std::vector<RunTrace> Records(const Study& study, uint64_t seed) {
  std::vector<RunTrace> all;
  for (const int64_t ranks : study.measured) {
    BenchRunForTest bench;
    bench.world_size = ranks;
    bench.seconds = [law = study.law, ranks](double bytes) {
      return TrueSeconds(law, bytes, ranks);
    };
    bench.noise = {.calls = 42, .deviation = 0.03, .correlation = 0.5};
    bench.seed = 1000 * seed + static_cast<uint64_t>(ranks);
    for (RunTrace& run : MakeLaunches(bench, study.launches, 0.08, study.tail))
      all.push_back(std::move(run));
  }
  return all;
}

// Returns the kind of the interval; sets `share` to the share of studies in
// which it contained the truth.
std::string Cover(const Study& study, double bytes, int64_t ranks,
                  double* share) {
  std::string kind;
  ShareForTest held;
  for (int trial = 0; trial < Trials(); ++trial) {
    const auto network = FitNetwork(Records(study, trial));
    EXPECT_TRUE(network.ok()) << network.status();
    const auto cost = network->Estimate("all_reduce", bytes, ranks);
    EXPECT_TRUE(cost.ok()) << cost.status();
    const double truth = TrueSeconds(study.law, bytes, ranks);
    held.Add(cost->interval.low <= truth && truth <= cost->interval.high);
    kind = IntervalKind(cost->conditions);
  }
  *share = held.share();
  std::printf(
      "%s, %zu world sizes, %d launches%s, %.0f bytes on %d ranks: "
      "%.1f %% (%s)\n",
      std::string(GrowthName(study.law)).c_str(), study.measured.size(),
      study.launches, study.tail ? " with tails" : "", bytes,
      static_cast<int>(ranks), 100 * *share, kind.c_str());
  return kind;
}

TEST(CostCoverage, SeveralLaunchesOfTwoWorldSizesGive95Percent) {
  for (const Growth law : {Growth::kRing, Growth::kTree}) {
    for (const bool tail : {false, true}) {
      for (const int launches : {2, 3, 5, 10}) {
        if (launches != 3 && !IsComplete()) continue;
        for (const int64_t ranks : {2, 16, 64, 1024}) {
          double share = 0;
          const Study study = {.law = law, .launches = launches, .tail = tail};
          EXPECT_EQ(Cover(study, 262144, ranks, &share), "95 %");
          EXPECT_GE(share, 0.90);
        }
      }
    }
  }
}

TEST(CostCoverage, OneWorldSizeGivesARangeThatHoldsEitherLaw) {
  for (const Growth law : {Growth::kRing, Growth::kTree}) {
    for (const int64_t ranks : {16, 64, 1024}) {
      double share = 0;
      EXPECT_EQ(Cover({.law = law, .measured = {2}}, 4096, ranks, &share),
                "range, if growth tree to ring");
      EXPECT_GE(share, 0.93);
    }
  }
}

TEST(CostCoverage, OneLaunchIsNotCalled95Percent) {
  double share = 0;
  EXPECT_EQ(Cover({.launches = 1}, 262144, 2, &share),
            "range, if launches alike");
  EXPECT_LT(share, 0.9);  // the launches of this test are not alike
  const auto one = FitNetwork(Records({.launches = 1}, 1));
  EXPECT_THAT(NetworkText(*one), HasSubstr("range, if launches alike"));
  EXPECT_THAT(NetworkText(*one), Not(HasSubstr("95 %")));
  const auto three = FitNetwork(Records({.launches = 3}, 1));
  EXPECT_THAT(NetworkText(*three), HasSubstr("95 %"));
  EXPECT_THAT(NetworkText(*three), Not(HasSubstr("range")));
}

// In an exchange with 2 ranks on each of 2 hosts, the whole buffer crosses each
// host's link; with 1 rank on each of 4 hosts, three quarters of it.
TEST(CostCoverage, AnExchangeIsFittedByItsLayout) {
  const auto truth = [](double bytes, double share) {
    return 1e-4 + 8e-9 * share * bytes;
  };
  std::vector<RunTrace> runs;
  for (const int64_t hosts : {2, 4}) {
    BenchRunForTest bench;
    bench.collectives = {"all_to_all"};
    bench.world_size = 4;
    bench.hosts = hosts;
    bench.seconds = [&truth, hosts](double bytes) {
      return truth(bytes, hosts == 2 ? 1.0 : 0.75);
    };
    for (RunTrace& run : MakeLaunches(bench, 3, 0)) runs.push_back(run);
  }
  const auto both = FitNetwork(runs);
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->across_hosts[0].curves.size(), 2u);
  const double bytes = 2097152;
  for (const auto& [hosts, share] : {std::pair<int64_t, double>{2, 1},
                                     std::pair<int64_t, double>{4, 0.75}}) {
    const auto cost = both->Estimate("all_to_all", bytes, 4, hosts);
    EXPECT_NEAR(cost->seconds / truth(bytes, share), 1, 1e-6) << hosts;
    EXPECT_FALSE(cost->extrapolated);
  }
  // Predicts one layout from the other by the link's share of the buffer.
  const auto four = FitNetwork(absl::MakeSpan(runs).subspan(3));
  ASSERT_TRUE(four.ok()) << four.status();
  const auto two_hosts = four->Estimate("all_to_all", bytes, 4, 2);
  EXPECT_NEAR(two_hosts->seconds / truth(bytes, 1), 1, 1e-6);
  EXPECT_TRUE(two_hosts->extrapolated);
  EXPECT_THAT(four->Extrapolations("all_to_all", bytes, 4, 2),
              testing::ElementsAre(HasSubstr("cross a host's link")));
  // The file preserves the layouts.
  const auto back = NetworkFromJson(NetworkToJson(*both));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->Estimate("all_to_all", bytes, 4, 4)->seconds,
            both->Estimate("all_to_all", bytes, 4, 4)->seconds);
}

}  // namespace
}  // namespace rankwise
