#include "samplers/loader/single_threaded.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

namespace rankwise {
namespace {

TEST(SingleThreadedTest, HoldsForTheCallingThreadAlone) {
  at::set_num_threads(3);
  int within = 0, later = 0;
  std::thread([&within] {
    RunOperatorsSingleThreaded();
    within = at::get_num_threads();
  }).join();
  std::thread([&later] { later = at::get_num_threads(); }).join();
  EXPECT_EQ(within, 1);
  EXPECT_EQ(later, 3);
  EXPECT_EQ(at::get_num_threads(), 3);
}

}  // namespace
}  // namespace rankwise
