#include "parallel/sharded/order/unit_bytes.h"

#include "gtest/gtest.h"

namespace rankwise {
namespace {

// Two units of 10 elements, 12 with padding.
UnitBytes TwoUnits(const UnitBytesConfig& config) {
  return UnitBytes({{10, 12}, {10, 12}}, config);
}

TEST(UnitBytesTest, AGatherHasItsMessageAndThenTheParameters) {
  UnitBytes units = TwoUnits({.zero = 3, .parameter_bytes = 2});
  units.StartGather(0);
  EXPECT_TRUE(units.Gathered(0));
  EXPECT_EQ(units.peak(), 2 * 12);
  units.FinishGather(0);
  EXPECT_EQ(units.peak(), 2 * (12 + 10));
  units.Invalidate(0);
  EXPECT_FALSE(units.Gathered(0));
  units.StartGather(1);
  units.FinishGather(1);
  EXPECT_EQ(units.peak(), 2 * (12 + 10)) << "the first is freed";
}

TEST(UnitBytesTest, OneRankSendsNoMessageAndZero1KeepsItsParameters) {
  UnitBytes alone = TwoUnits({.zero = 3, .ranks = 1});
  alone.StartGather(0);
  EXPECT_EQ(alone.peak(), 0);
  UnitBytes stays = TwoUnits({.zero = 1});
  stays.StartGather(0);
  stays.FinishGather(0);
  EXPECT_EQ(stays.peak(), 4 * 12);
}

TEST(UnitBytesTest, AReductionTakesItsInputInPlaceOfTheGradients) {
  UnitBytes units = TwoUnits({.zero = 2, .parameter_bytes = 2});
  units.AddGradients(0, 0, 10);
  EXPECT_EQ(units.peak(), 2 * 10);
  units.StartReduce(0);
  EXPECT_EQ(units.peak(), 2 * 10 + 4 * 12);
  units.FinishReduce(0);
  units.AddGradients(1, 1, 10);
  units.StartReduce(1);
  EXPECT_EQ(units.peak(), 2 * 10 + 4 * 12);
}

TEST(UnitBytesTest, AnotherMicroBatchAddsToTheGradientsThatAreThere) {
  UnitBytes units = TwoUnits({.zero = 2});
  units.AddGradients(0, 1, 4);
  units.AddGradients(0, 1, 4);
  EXPECT_EQ(units.peak(), 4 * 4);
  units.AddGradients(0, 0, 6);
  EXPECT_EQ(units.peak(), 4 * 10);
}

TEST(UnitBytesTest, TheSumOfMicroBatchesIsFp32) {
  UnitBytes units = TwoUnits({.zero = 3, .parameter_bytes = 2});
  units.AddGradients(0, 0, 10);
  EXPECT_EQ(units.peak(), 2 * 10);
  units.AddGradients(0, 0, 10);
  EXPECT_EQ(units.peak(), 4 * 10);
  units.AddGradients(0, 0, 10);
  EXPECT_EQ(units.peak(), 4 * 10);
  units.StartReduce(0);
  units.FinishReduce(0);
  units.AddGradients(0, 0, 10);
  units.AddGradients(1, 1, 10);
  EXPECT_EQ(units.peak(), 4 * 10 + 4 * 12) << "while the first is reduced";
}

}  // namespace
}  // namespace rankwise
