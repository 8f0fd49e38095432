#include "analysis/study/fixed_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::Le;
using ::testing::SizeIs;

constexpr int64_t kMegabyte = 1000000;

int64_t Under(int64_t megabytes) { return megabytes * kMegabyte; }

std::vector<int64_t> Batches(const MemoryFit& fit) {
  std::vector<int64_t> batches;
  for (const auto& [batch, peak_bytes] : fit.probes) batches.push_back(batch);
  return batches;
}

TEST(LargestBatch, ALineTakesTwoProbesAndACheck) {
  const auto fit = LargestBatch(Under(1000), [](int64_t batch) {
    return 200 * kMegabyte + batch * kMegabyte;
  });
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->batch, 800);
  EXPECT_EQ(fit->peak_bytes, 1000 * kMegabyte);
  EXPECT_THAT(Batches(*fit), ElementsAre(8, 64, 800));
}

TEST(LargestBatch, IsAMultipleOfEight) {
  const auto fit = LargestBatch(Under(999), [](int64_t batch) {
    return 200 * kMegabyte + batch * kMegabyte;
  });
  EXPECT_EQ(fit->batch, 792);
}

TEST(LargestBatch, BetweenTheFirstTwoProbes) {
  const auto fit = LargestBatch(Under(230), [](int64_t batch) {
    return 200 * kMegabyte + batch * kMegabyte;
  });
  EXPECT_EQ(fit->batch, 24);
}

TEST(LargestBatch, TheSmallestMayBeAllThatFits) {
  const auto fit =
      LargestBatch(Under(15), [](int64_t batch) { return batch * kMegabyte; });
  EXPECT_EQ(fit->batch, 8);
}

TEST(LargestBatch, WhatTheLineGotWrongIsNarrowedDown) {
  // Convex: the line from small batches is too optimistic.
  const auto peak = [](int64_t batch) {
    return 100 * kMegabyte + batch * batch * 1000;
  };
  const auto fit = LargestBatch(Under(1000), peak);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_THAT(peak(fit->batch), Le(1000 * kMegabyte));
  // sqrt(900e6 / 1e3) = 948.7
  EXPECT_GE(fit->batch, 850);
  EXPECT_THAT(fit->probes, SizeIs(Le(8)));
}

TEST(LargestBatch, MemoryThatDoesNotGrowEndsAtTheLargestBatch) {
  const auto fit =
      LargestBatch(Under(100), [](int64_t) { return 50 * kMegabyte; });
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->batch, 1 << 20);
}

TEST(LargestBatch, RefusesALimitBelowTheSmallestBatch) {
  int probes = 0;
  const auto fit = LargestBatch(Under(100), [&probes](int64_t) {
    ++probes;
    return 312 * kMegabyte;
  });
  EXPECT_EQ(fit.status().message(),
            "needs 312 MB with its smallest batch, 8, and the limit is 100 MB");
  EXPECT_EQ(probes, 1);
}

TEST(LargestBatch, FailsAsItsProbeDoes) {
  const auto fit =
      LargestBatch(Under(100), [](int64_t) -> absl::StatusOr<int64_t> {
        return absl::UnknownError("no memory record");
      });
  EXPECT_EQ(fit.status().message(), "no memory record");
}

MemoryFit FitOf400() {
  return {400, 500 * kMegabyte, {{8, 108 * kMegabyte}, {400, 500 * kMegabyte}}};
}

TEST(ConfirmBatch, KeepsABatchThatHoldsTheLimit) {
  const auto fit = ConfirmBatch(Under(500), FitOf400(), [](int64_t batch) {
    return (100 + batch) * kMegabyte;
  });
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->batch, 400);
}

TEST(ConfirmBatch, StepsDownByWhatAWholeRunNeedsMore) {
  std::vector<int64_t> tried;
  const auto fit = ConfirmBatch(Under(500), FitOf400(), [&](int64_t batch) {
    tried.push_back(batch);
    return (150 + batch) * kMegabyte;
  });
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->batch, 344);
  EXPECT_EQ(fit->peak_bytes, 494 * kMegabyte);
  EXPECT_THAT(tried, ElementsAre(400, 344));
}

TEST(ConfirmBatch, HalvesAtMostAndEndsAtTheSmallest) {
  std::vector<int64_t> tried;
  const auto fit = ConfirmBatch(Under(500), FitOf400(), [&](int64_t batch) {
    tried.push_back(batch);
    return 1000 * kMegabyte;
  });
  EXPECT_TRUE(absl::IsOutOfRange(fit.status())) << fit.status();
  EXPECT_THAT(tried, ElementsAre(400, 200, 96, 48, 24, 8));
}

}  // namespace
}  // namespace rankwise
