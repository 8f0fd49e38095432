#include "analysis/text/text_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rankwise {
namespace {

TEST(TextTable, AlignsTextLeftAndNumbersRight) {
  TextTable table({"name", "n", "share"}, /*left_columns=*/1);
  table.AddRow({"a", "1", "5.0 %"});
  table.AddRow({"longer", "1234", "-"});
  EXPECT_EQ(table.ToString(),
            "name       n  share\n"
            "-------------------\n"
            "a          1  5.0 %\n"
            "longer  1234      -\n");
}

TEST(TextTable, LinesHaveNoTrailingSpaces) {
  TextTable table({"name", "note"}, /*left_columns=*/2);
  table.AddRow({"a", "a long note"});
  table.AddRow({"b", ""});
  EXPECT_EQ(table.ToString(), "name  note\n----------\na     a long note\nb\n");
}

TEST(NumberText, WritesSharesAndTimes) {
  EXPECT_EQ(PercentText(0.9714), "97.1 %");
  EXPECT_EQ(SignedPercentText(0.032), "+3.2 %");
  EXPECT_EQ(SignedPercentText(-0.032), "-3.2 %");
  EXPECT_EQ(MillisecondsText(0.0123456), "12.3");
  EXPECT_EQ(MillisecondsText(1.23456e-5), "0.0123");
  EXPECT_EQ(MillisecondsText(0.99949), "999");
  EXPECT_EQ(MillisecondsText(12.3456), "12346");
  EXPECT_EQ(MillisecondsColumn(0.0123), "12.30");
}

TEST(NumberText, WhatIsNotKnownIsADash) {
  for (const auto text :
       {PercentText, SignedPercentText, MillisecondsText, MillisecondsColumn}) {
    EXPECT_EQ(text(std::nan("")), "-");
  }
}

}  // namespace

}  // namespace rankwise
