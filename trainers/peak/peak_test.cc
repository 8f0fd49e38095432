#include "trainers/peak/peak.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trainers/peak/peak_file.h"

namespace rankwise {
namespace {

const PeakKey kKey = {{"threads", "2"}, {"precision", "fp32"}};

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/peak.XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder + "/made/by/it";
}

// Measures `measured`, and counts the measurements.
struct Measure {
  std::string path;
  MeasuredPeak measured;
  int times = 0;

  absl::StatusOr<DevicePeak> Once() {
    return PeakOnce(path, kKey, [this] {
      ++times;
      return WritePeak(path, kKey, measured);
    });
  }
};

void ExpectPeak(const absl::StatusOr<DevicePeak>& peak, double flops,
                double bytes) {
  ASSERT_TRUE(peak.ok()) << peak.status();
  EXPECT_EQ(peak->flops_per_second, flops);
  EXPECT_EQ(peak->bytes_per_second, bytes);
}

TEST(PeakOnce, MeasuresOnce) {
  Measure measure{PeakPath(NewFolder(), kKey), {{1.5e11, 2e10}}};
  for (int i = 0; i < 2; ++i) ExpectPeak(measure.Once(), 1.5e11, 2e10);
  EXPECT_EQ(measure.times, 1);
}

TEST(PeakOnce, ADamagedFileIsMeasuredAgain) {
  Measure measure{PeakPath(NewFolder(), kKey), {{1.5e11, 2e10}}};
  ASSERT_TRUE(measure.Once().ok());
  int times = 1;
  for (const char* text :
       {"", "{", "[]", "{\"of\":3}",
        "{\"of\":{\"threads\":\"1\",\"precision\":\"fp32\"},"
        "\"flops_per_second\":1e11,\"bytes_per_second\":1e10}",
        "{\"of\":{\"threads\":\"2\",\"precision\":\"fp32\"},"
        "\"flops_per_second\":-1,\"bytes_per_second\":1e10}"}) {
    std::ofstream(measure.path) << text;
    EXPECT_TRUE(measure.Once().ok());
    EXPECT_EQ(measure.times, ++times) << text;
  }
}

void MakeOld(const std::string& path,
             std::chrono::minutes age = std::chrono::minutes(2)) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - age);
}

TEST(PeakOnce, ADisturbedOneIsMeasuredAgainLaterAndTheLargerRatesAreKept) {
  Measure measure{PeakPath(NewFolder(), kKey), {{1e11, 2e10}, true}};
  ExpectPeak(measure.Once(), 1e11, 2e10);
  measure.measured = {{1.5e11, 1e10}, true};
  ExpectPeak(measure.Once(), 1e11, 2e10);  // by the ranks of the same run
  MakeOld(measure.path);
  ExpectPeak(measure.Once(), 1.5e11, 2e10);
  measure.measured = {{1.2e11, 3e10}, false};
  for (int i = 0; i < 2; ++i) {
    MakeOld(measure.path);
    ExpectPeak(measure.Once(), 1.5e11, 3e10);
  }
  EXPECT_EQ(measure.times, 3);
}

TEST(PeakOnce, FiveDisturbedOnesHaveToDoForAnHour) {
  Measure measure{PeakPath(NewFolder(), kKey), {{1e11, 2e10}, true}};
  for (int i = 0; i < 7; ++i) {
    ExpectPeak(measure.Once(), 1e11, 2e10);
    MakeOld(measure.path);
  }
  EXPECT_EQ(measure.times, 5);
  MakeOld(measure.path, std::chrono::minutes(61));
  measure.measured = {{2e11, 3e10}, false};
  ExpectPeak(measure.Once(), 2e11, 3e10);
  EXPECT_EQ(measure.times, 6);
}

TEST(PeakOnce, OtherUsesHaveOtherFiles) {
  EXPECT_NE(PeakPath("folder", kKey), PeakPath("folder", {{"threads", "1"}}));
}

TEST(PeakOnce, SaysWhyAFolderCannotHoldIt) {
  Measure measure{PeakPath("/dev/null/folder", kKey), {{1, 1}}};
  EXPECT_THAT(std::string(measure.Once().status().message()),
              testing::HasSubstr("cannot lock /dev/null/folder/peak-"));
  EXPECT_EQ(measure.times, 0);
}

TEST(PeakOnce, OfProcessesAtTheSameTimeOneMeasures) {
  const std::string folder = NewFolder();
  Measure measure{PeakPath(folder, kKey), {{1.5e11, 2e10}}};
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const auto peak = measure.Once();
      _exit(!peak.ok() || peak->flops_per_second != 1.5e11 ? 9 : measure.times);
    }
    children.push_back(child);
  }
  int times = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    times += WEXITSTATUS(status);
  }
  EXPECT_EQ(times, 1);
}

TEST(MeasurePeak, FindsRatesInEveryPrecision) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const DevicePeak peak =
        MeasurePeak({.precision = precision},
                    {.matrix_size = 64, .array_bytes = 1 << 16, .seconds = 0})
            .peak;
    EXPECT_GT(peak.flops_per_second, 1e6) << precision;
    EXPECT_GT(peak.bytes_per_second, 1e6) << precision;
  }
}

TEST(MeasurePeak, LeavesTheRunsRandomNumbersAlone) {
  at::manual_seed(1);
  const at::Tensor drawn = at::rand({4});
  at::manual_seed(1);
  MeasurePeak({}, {.matrix_size = 64, .array_bytes = 1 << 16, .seconds = 0});
  EXPECT_TRUE(at::rand({4}).equal(drawn));
}

TEST(EffortFor, ArraysAreFourTimesTheLastCacheUpToALimit) {
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const PeakEffort effort = EffortFor(c10::kCPU);
  EXPECT_GE(effort.array_bytes, 64 << 20);
  EXPECT_LE(effort.array_bytes, 256 << 20);
  EXPECT_GE(effort.array_bytes, std::min<int64_t>(4 * cache, 256 << 20));
}

}  // namespace
}  // namespace rankwise
