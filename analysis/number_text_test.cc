#include "analysis/number_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rankwise {
namespace {

TEST(NumberText, WritesSharesAndTimes) {
  EXPECT_EQ(PercentText(0.9714), "97.1 %");
  EXPECT_EQ(SignedPercentText(0.032), "+3.2 %");
  EXPECT_EQ(SignedPercentText(-0.032), "-3.2 %");
  EXPECT_EQ(MillisecondsText(0.0123456), "12.3");
  EXPECT_EQ(MillisecondsText(1.23456e-5), "0.0123");
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
