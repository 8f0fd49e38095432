// Replaces micro_gpu_test.cc in a build without CUDA.
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "comm_bench/cuda/benchmarks.h"
#include "comm_bench/cuda/measurements.h"
#include "parallel/device/device_facts.h"
#include "parallel/device/require_gpus.h"

namespace rankwise::micro {
namespace {

TEST(MicroGpuTest, ABuildWithoutCudaSaysWhyItMeasuresNothing) {
  bool failed = false;
  for (const absl::Status& refused :
       {RegisterMeasurements(&failed), MeasurePeerCopies(1).status()}) {
    EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
    EXPECT_EQ(refused.message(), WhyNoGpu());
  }
  EXPECT_FALSE(failed);
  GTEST_SKIP() << WhyTooFewGpus(1);  // the kernels were not tested
}

}  // namespace
}  // namespace rankwise::micro
