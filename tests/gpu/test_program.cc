// The program that pack_test runs through `run`, with each possible outcome of
// a test.

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace {

TEST(Ends, Well) {}

TEST(Ends, Early) { GTEST_SKIP() << "no moon tonight"; }

TEST(Ends, AsTold) {
  const char* told = std::getenv("TEST_PROGRAM_ENDS");
  const std::string how = told == nullptr ? "badly" : told;
  if (how == "by_signal") std::abort();
  if (how == "never") pause();
  EXPECT_EQ(how, "well");
}

}  // namespace
