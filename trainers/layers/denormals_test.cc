#include "trainers/layers/denormals.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace rankwise {
namespace {

// Counts over enough elements for all intra-op threads.
int64_t DenormalsLeft() {
  const at::Tensor smallest =
      at::full({1 << 20}, std::numeric_limits<float>::min());
  return (smallest * 0.25f).count_nonzero().item<int64_t>();
}

TEST(FlushDenormalsTest, HoldsForTheThreadAndItsIntraOpThreads) {
  if (!at::Context::setFlushDenormal(false)) GTEST_SKIP() << "not on this CPU";
  at::set_num_threads(2);
  // Each thread has its own intra-op threads.
  std::thread([] { EXPECT_EQ(DenormalsLeft(), 1 << 20); }).join();
  std::thread([] {
    FlushDenormals();
    EXPECT_EQ(DenormalsLeft(), 0);
  }).join();
}

}  // namespace
}  // namespace rankwise
