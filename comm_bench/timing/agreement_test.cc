#include "comm_bench/timing/agreement.h"

#include <atomic>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "parallel/comm/rank_threads_for_test.h"

namespace rankwise::comm_bench {
namespace {

using Flags = std::map<std::string, std::string>;

TEST(AgreementTest, EqualFlagsAgree) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    Control& control = rank.control;
    EXPECT_TRUE(CheckSameFlags(control, {{"sizes", "8"}, {"ops", ""}}).ok());
  });
}

TEST(AgreementTest, TheFirstDifferenceIsNamedOnAllRanks) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    Control& control = rank.control;
    const Flags flags = {{"dtypes", "float32"},
                         {"sizes", control.rank() == 2 ? "16" : "8"}};
    EXPECT_EQ(CheckSameFlags(control, flags).message(),
              "ranks disagree: rank 2 has --sizes=16 but rank 0 has "
              "--sizes=8; give every rank the same flags");
  });
}

TEST(AgreementTest, AFlagThatOneRankLacksIsNamed) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    Control& control = rank.control;
    Flags flags = {{"sizes", "8"}};
    if (control.rank() == 1) flags["warmup"] = "3";
    EXPECT_EQ(CheckSameFlags(control, flags).message(),
              "ranks disagree: rank 1 has --warmup=3 but rank 0 has no "
              "--warmup; give every rank the same flags");
  });
}

TEST(AgreementTest, WhatOneRankCannotDoNoRankDoes) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    EXPECT_TRUE(AllOk(rank.control, absl::OkStatus(), "eat").ok());
    const bool bad = rank.control.rank() == 1;
    const absl::Status all =
        AllOk(rank.control,
              bad ? absl::InternalError("no spoon") : absl::OkStatus(), "eat");
    EXPECT_EQ(std::string(all.message()),
              bad ? "no spoon"
                  : "rank 1 could not eat; its own error gives the reason");
  });
}

TEST(AgreementTest, TextsOfDifferentLengthsArriveWhole) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const std::string own(rank.control.rank() * 3, '\xe9');
    const auto texts = GatherTexts(rank.control, own);
    ASSERT_EQ(texts.size(), 3u);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(texts[i], std::string(i * 3, '\xe9'));
      EXPECT_EQ(TextFrom(rank.control, own, i), std::string(i * 3, '\xe9'));
    }
  });
}

TEST(FirstRankWithTest, IsTheLowest) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const int own = rank.control.rank();
    EXPECT_EQ(FirstRankWith(rank.control, false), -1);
    EXPECT_EQ(FirstRankWith(rank.control, true), 0);
    EXPECT_EQ(FirstRankWith(rank.control, own > 0), 1);
  });
}

TEST(AnyStoppedTest, OneRankIsEnoughAndAllKnow) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const std::atomic<bool> stop = rank.control.rank() == 2;
    const std::atomic<bool> go_on = false;
    EXPECT_TRUE(AnyStopped(rank.control, &stop));
    EXPECT_FALSE(AnyStopped(rank.control, &go_on));
    EXPECT_FALSE(AnyStopped(rank.control, nullptr));
  });
}

}  // namespace
}  // namespace rankwise::comm_bench
