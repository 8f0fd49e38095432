#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "comm_bench/cuda/benchmarks.h"
#include "comm_bench/cuda/kernels.h"
#include "comm_bench/cuda/measurements.h"
#include "parallel/device/device_facts.h"
#include "parallel/device/require_gpus.h"

namespace rankwise::micro {
namespace {

// Skips the tests without a GPU; common functions of the tests of kernels.
class MicroGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
    const absl::StatusOr<GpuFacts> gpu = DescribeGpu(0);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    gpu_ = *gpu;
  }

  static void ExpectNoError() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  GpuFacts gpu_;
};

class CopyKernelGpuTest : public MicroGpuTest {
 protected:
  // bytes after the target that must stay unchanged
  static constexpr int64_t kMargin = 64;

  static void ExpectCopied(int64_t bytes) {
    SCOPED_TRACE(absl::StrCat(bytes, " bytes"));
    const at::Tensor host =
        at::randint(1, 256, {bytes + kMargin}, at::dtype(at::kByte));
    const at::Tensor from = host.to(c10::kCUDA);
    const at::Tensor to = at::zeros(from.sizes(), from.options());
    LaunchCopy(from.data_ptr<uint8_t>(), to.data_ptr<uint8_t>(), bytes,
               nullptr);
    ExpectNoError();
    const at::Tensor copied = to.cpu();
    EXPECT_TRUE(
        at::equal(copied.narrow(0, 0, bytes), host.narrow(0, 0, bytes)));
    EXPECT_FALSE(copied.narrow(0, bytes, kMargin).any().item<bool>());
  }
};

TEST_F(CopyKernelGpuTest, CopiesAnySize) {
  for (int64_t bytes : {0, 1, 7, 15, 16, 17, 31, 4095, 4096, 16383, 16384,
                        16385, 3 * 16384 + 5, 70001, (1 << 20) + 3}) {
    ExpectCopied(bytes);
  }
}

class SumKernelGpuTest : public MicroGpuTest {
 protected:
  // Uses LaunchSum or LaunchSumOfBfloat16.
  float Sum(const at::Tensor& values) const {
    const int blocks = SumBlocks(gpu_.multiprocessors);
    const at::Tensor results =
        at::full({blocks + 1}, std::numeric_limits<float>::quiet_NaN(),
                 at::device(c10::kCUDA));
    auto* const sum = results.data_ptr<float>();
    if (values.scalar_type() == at::kFloat) {
      LaunchSum(values.data_ptr<float>(), values.numel(), blocks, sum + 1, sum,
                nullptr);
    } else {
      LaunchSumOfBfloat16(static_cast<const uint16_t*>(values.data_ptr()),
                          values.numel(), blocks, sum + 1, sum, nullptr);
    }
    ExpectNoError();
    return results[0].item<float>();
  }

  // Sums small integers, which float adds exactly in any order.
  void ExpectExact(c10::ScalarType dtype) const {
    for (int64_t count :
         {0, 1, 2, 3, 7, 8, 9, 31, 1000, 1023, 65537, 1000003, 3000001}) {
      SCOPED_TRACE(absl::StrCat(count, " values"));
      const at::Tensor host = at::randint(-2, 3, {count}, at::kLong);
      EXPECT_EQ(Sum(host.to(c10::kCUDA, dtype)),
                static_cast<float>(host.sum().item<int64_t>()));
    }
  }
};

TEST_F(SumKernelGpuTest, FloatsOfAnyCount) { ExpectExact(at::kFloat); }

TEST_F(SumKernelGpuTest, Bfloat16sOfAnyCount) { ExpectExact(at::kBFloat16); }

// Uses values whose sum depends on the order of additions.
TEST_F(SumKernelGpuTest, GivesTheSameBitsEveryTime) {
  constexpr int64_t kCount = 4'000'037;
  constexpr int kRepetitions = 20;
  const at::Tensor host = at::rand({kCount});
  const at::Tensor values = host.to(c10::kCUDA);
  const float first = Sum(values);
  EXPECT_NEAR(first / host.sum(at::kDouble).item<double>(), 1, 1e-5);
  for (int i = 0; i < kRepetitions; ++i) {
    const float again = Sum(values);
    EXPECT_EQ(std::memcmp(&first, &again, sizeof(float)), 0) << again;
  }
}

using Made = std::unique_ptr<Measurement>;

class MeasurementGpuTest : public MicroGpuTest {
 protected:
  // Checks that a Run after Clear is accepted, and that Clear alone is
  // rejected.
  static void ExpectMeasures(const Made& made) {
    const absl::Status checked = WarmUpAndCheck(*made);
    EXPECT_TRUE(checked.ok()) << checked;
    made->Clear();
    EXPECT_GT(made->Run(), 0);
    const absl::Status again = made->Check();
    EXPECT_TRUE(again.ok()) << again;
  }

  static void ExpectNoticesNothingDone(const Made& made) {
    made->Clear();
    const absl::Status status = made->Check();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  }

  static constexpr int64_t kBytes = (3 << 20) + 2;
};

TEST_F(MeasurementGpuTest, CopiesBetweenHostAndGpu) {
  if (!GpusCompute()) GTEST_SKIP() << "virtual GPUs make no pattern";
  for (const bool to_gpu : {true, false}) {
    for (const bool pinned : {true, false}) {
      ExpectMeasures(MakeHostCopy({to_gpu, pinned}, kBytes));
      ExpectNoticesNothingDone(MakeHostCopy({to_gpu, pinned}, kBytes));
    }
  }
}

TEST_F(MeasurementGpuTest, CopiesWithinTheGpu) {
  if (!GpusCompute()) GTEST_SKIP() << "virtual GPUs make no pattern";
  for (GpuCopy by : {GpuCopy::kMemcpy, GpuCopy::kKernel}) {
    ExpectMeasures(MakeGpuCopy(by, kBytes));
    ExpectNoticesNothingDone(MakeGpuCopy(by, kBytes));
  }
}

TEST_F(MeasurementGpuTest, Sums) {
  for (SumOf what : {SumOf::kFloat, SumOf::kBfloat16}) {
    ExpectMeasures(MakeSum(what, kBytes, gpu_.multiprocessors));
    ExpectNoticesNothingDone(MakeSum(what, kBytes, gpu_.multiprocessors));
  }
}

TEST_F(MeasurementGpuTest, Launches) {
  for (Launching how : {Launching::kKernels, Launching::kGraph}) {
    for (LaunchTime what : {LaunchTime::kOfHost, LaunchTime::kBetweenKernels,
                            LaunchTime::kToFinish}) {
      ExpectMeasures(MakeLaunch(how, what));
    }
  }
}

TEST_F(MeasurementGpuTest, SaysWhatDoesNotFit) {
  EXPECT_THROW(MakeGpuCopy(GpuCopy::kMemcpy, int64_t{1} << 50),
               c10::OutOfMemoryError);
  ExpectMeasures(MakeGpuCopy(GpuCopy::kMemcpy, kBytes));
}

TEST_F(MicroGpuTest, RunsCodeOfItsOwnArchitecture) {
  EXPECT_EQ(KernelArchitecture() / 10, gpu_.major);
}

TEST_F(MicroGpuTest, TheContextNamesTheGpu) {
  EXPECT_THAT(GpuContext(gpu_),
              ::testing::Contains(
                  std::pair<std::string, std::string>("gpu", gpu_.name)));
}

TEST_F(MicroGpuTest, OneGpuHasNoPeers) {
  EXPECT_TRUE(absl::IsInvalidArgument(MeasurePeerCopies(0).status()));
  if (VisibleGpus() > 1) GTEST_SKIP() << "there are peers";
  EXPECT_TRUE(absl::IsNotFound(MeasurePeerCopies(1).status()));
}

TEST(PeerCopyGpuTest, CopiesBetweenEveryOrderedPair) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  constexpr int64_t kBytes = (8 << 20) + 1;
  const absl::StatusOr<std::vector<PeerCopy>> copies =
      MeasurePeerCopies(kBytes);
  ASSERT_TRUE(copies.ok()) << copies.status();
  const size_t gpus = VisibleGpus();
  ASSERT_EQ(copies->size(), gpus * (gpus - 1));
  for (const PeerCopy& copy : *copies) {
    EXPECT_NE(copy.from, copy.to);
    EXPECT_GT(copy.bytes_per_second, 0);
  }
}

// Peer access remains enabled, and the current GPU unchanged.
TEST(PeerCopyGpuTest, CanBeMeasuredTwice) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    const auto copies = MeasurePeerCopies(1 << 20);
    EXPECT_TRUE(copies.ok()) << copies.status();
  }
  int after = -1;
  ASSERT_EQ(cudaGetDevice(&after), cudaSuccess);
  EXPECT_EQ(after, device);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace rankwise::micro
