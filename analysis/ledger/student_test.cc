#include "analysis/ledger/student.h"

#include "gtest/gtest.h"

namespace rankwise {
namespace {

TEST(StudentTest, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 1), 12.7062, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 2), 4.3027, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 3), 3.1824, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 10), 2.2281, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.01, 15), 2.9467, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.001, 4), 8.6103, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.5, 30), 0.6828, 1e-4);
}

TEST(StudentTest, NothingIsBeyondInfinityAndAllBeyondZero) {
  for (int degrees = 1; degrees < 40; ++degrees) {
    EXPECT_NEAR(StudentTwoSidedP(0, degrees), 1, 1e-12);
    EXPECT_NEAR(StudentTwoSidedP(1e12, degrees), 0, 1e-11);
  }
}

}  // namespace
}  // namespace rankwise
