#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/benchmarks.h"
#include "comm_bench/cuda/byte_pattern.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/kernels.h"
#include "comm_bench/cuda/measurements.h"
#include "comm_bench/cuda/peer_copy.h"
#include "parallel/device/device_facts.h"
#include "parallel/device/require_gpus.h"

namespace rankwise::micro {
namespace {

using ::testing::Each;

// Skips, unless there is a GPU; with what the tests of kernels share.
class MicroGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = WhyNotOn(1); !why.empty()) GTEST_SKIP() << why;
    const absl::StatusOr<GpuFacts> gpu = DescribeGpu(0);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    gpu_ = *gpu;
  }

  static GpuMemory Allocate(int64_t bytes) {
    absl::StatusOr<GpuMemory> memory = AllocateGpuMemory(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? *std::move(memory) : nullptr;
  }

  static std::vector<uint8_t> Downloaded(const uint8_t* gpu, int64_t bytes) {
    std::vector<uint8_t> host(bytes);
    const absl::Status status = Download(gpu, absl::MakeSpan(host));
    EXPECT_TRUE(status.ok()) << status;
    return host;
  }

  static void ExpectNoError() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  GpuFacts gpu_;
};

class CopyKernelGpuTest : public MicroGpuTest {
 protected:
  // Before `kMargin` bytes that must stay as they are.
  static constexpr int64_t kMargin = 64;

  static void ExpectCopied(int64_t bytes) {
    SCOPED_TRACE(absl::StrCat(bytes, " bytes"));
    const int64_t room = bytes + kMargin;
    const GpuMemory from = Allocate(room), to = Allocate(room);
    ASSERT_TRUE(from != nullptr && to != nullptr);
    ASSERT_TRUE(UploadPattern(room, from.get()).ok());
    ASSERT_TRUE(FillGpuMemory(0, room, to.get()).ok());
    LaunchCopy(from.get(), to.get(), bytes, nullptr);
    ExpectNoError();
    const std::vector<uint8_t> host = Downloaded(to.get(), room);
    const auto copy = absl::MakeConstSpan(host);
    const absl::Status right = CheckPattern(0, copy.first(bytes));
    EXPECT_TRUE(right.ok()) << right;
    EXPECT_THAT(copy.subspan(bytes), Each(0));
  }
};

TEST_F(CopyKernelGpuTest, CopiesAnySize) {
  for (int64_t bytes : {0, 1, 7, 15, 16, 17, 31, 4095, 4096, 16383, 16384,
                        16385, 3 * 16384 + 5, 70001, (1 << 20) + 3}) {
    ExpectCopied(bytes);
  }
}

// What LaunchSum takes, whichever type the values have.
using Sum = std::function<void(const uint8_t* values, int64_t count,
                               float* scratch, float* sum)>;

class SumKernelGpuTest : public MicroGpuTest {
 protected:
  Sum OfFloats() const {
    return [blocks = Blocks()](const uint8_t* values, int64_t count,
                               float* scratch, float* sum) {
      LaunchSum(reinterpret_cast<const float*>(values), count, blocks, scratch,
                sum, nullptr);
    };
  }
  Sum OfBfloat16s() const {
    return [blocks = Blocks()](const uint8_t* values, int64_t count,
                               float* scratch, float* sum) {
      LaunchSumOfBfloat16(reinterpret_cast<const uint16_t*>(values), count,
                          blocks, scratch, sum, nullptr);
    };
  }
  int Blocks() const { return SumBlocks(gpu_.multiprocessors); }

  // Of values that lie on the GPU.
  float Run(const Sum& launch, const uint8_t* values, int64_t count) const {
    constexpr int64_t kFloat = sizeof(float);
    const GpuMemory results = Allocate((Blocks() + 1) * kFloat);
    EXPECT_EQ(cudaMemset(results.get(), 0xff, (Blocks() + 1) * kFloat),
              cudaSuccess);
    auto* const floats = reinterpret_cast<float*>(results.get());
    launch(values, count, floats + 1, floats);
    ExpectNoError();
    float sum = 0;
    std::memcpy(&sum, Downloaded(results.get(), kFloat).data(), kFloat);
    return sum;
  }

  // The pattern's values as floats, or as the upper halves of floats.
  static std::vector<uint8_t> PatternOf(int64_t count, int64_t size) {
    std::vector<uint8_t> bytes(count * size);
    for (int64_t i = 0; i < count; ++i) {
      const float value = PatternValues()[i % kPatternPeriod];
      std::memcpy(
          bytes.data() + i * size,
          reinterpret_cast<const uint8_t*>(&value) + sizeof(value) - size,
          size);
    }
    return bytes;
  }

  void ExpectExact(const Sum& launch, int64_t size) const {
    for (int64_t count :
         {0, 1, 2, 3, 7, 8, 9, 31, 1000, 1023, 65537, 1000003, 3000001}) {
      SCOPED_TRACE(absl::StrCat(count, " values"));
      const GpuMemory memory = Allocate(count * size);
      ASSERT_TRUE(Upload(PatternOf(count, size), memory.get()).ok());
      EXPECT_EQ(Run(launch, memory.get(), count),
                static_cast<float>(PatternSum(count)));
    }
  }
};

TEST_F(SumKernelGpuTest, FloatsOfAnyCount) {
  ExpectExact(OfFloats(), sizeof(float));
}

TEST_F(SumKernelGpuTest, Bfloat16sOfAnyCount) {
  ExpectExact(OfBfloat16s(), sizeof(uint16_t));
}

// Of values whose sum depends on the order in which they are added.
TEST_F(SumKernelGpuTest, GivesTheSameBitsEveryTime) {
  constexpr int64_t kCount = 4'000'037;
  constexpr int kRepetitions = 20;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> values(kCount);
  for (float& value : values) value = uniform(random);
  const GpuMemory memory = Allocate(kCount * sizeof(float));
  ASSERT_TRUE(
      Upload(absl::MakeConstSpan(reinterpret_cast<uint8_t*>(values.data()),
                                 kCount * sizeof(float)),
             memory.get())
          .ok());
  const float first = Run(OfFloats(), memory.get(), kCount);
  const double exact = std::accumulate(values.begin(), values.end(), 0.0);
  EXPECT_NEAR(first / exact, 1, 1e-5);
  for (int i = 0; i < kRepetitions; ++i) {
    const float again = Run(OfFloats(), memory.get(), kCount);
    EXPECT_EQ(std::memcmp(&first, &again, sizeof(float)), 0) << again;
  }
}

using Made = absl::StatusOr<std::unique_ptr<Measurement>>;

class MeasurementGpuTest : public MicroGpuTest {
 protected:
  // Right from a clear state, and seen to be wrong without a Run.
  static void ExpectMeasures(const Made& made) {
    ASSERT_TRUE(made.ok()) << made.status();
    Measurement& measurement = **made;
    const absl::Status checked = WarmUpAndCheck(measurement);
    EXPECT_TRUE(checked.ok()) << checked;
    ASSERT_TRUE(measurement.Clear().ok());
    const absl::StatusOr<double> seconds = measurement.Run();
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_GT(*seconds, 0);
    const absl::Status again = measurement.Check();
    EXPECT_TRUE(again.ok()) << again;
  }

  static void ExpectNoticesNothingDone(const Made& made) {
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE((*made)->Clear().ok());
    const absl::Status status = (*made)->Check();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  }

  static constexpr int64_t kBytes = (3 << 20) + 2;
};

TEST_F(MeasurementGpuTest, CopiesBetweenHostAndGpu) {
  for (const bool to_gpu : {true, false}) {
    for (const bool pinned : {true, false}) {
      ExpectMeasures(MakeHostCopy({to_gpu, pinned}, kBytes));
      ExpectNoticesNothingDone(MakeHostCopy({to_gpu, pinned}, kBytes));
    }
  }
}

TEST_F(MeasurementGpuTest, CopiesWithinTheGpu) {
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
  const Made made = MakeGpuCopy(GpuCopy::kMemcpy, int64_t{1} << 50);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted)
      << made.status();
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
  if (auto why = WhyNotOn(2); !why.empty()) GTEST_SKIP() << why;
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

// Peer access is left as it was found.
TEST(PeerCopyGpuTest, CanBeMeasuredTwice) {
  if (auto why = WhyNotOn(2); !why.empty()) GTEST_SKIP() << why;
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
