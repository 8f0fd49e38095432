// Counts how often the printed 95 % interval of an efficiency contains the true
// value, for simulated studies that are written and read as records, analysed
// and printed.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/answer/answer.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/text/table.h"
#include "records/record_writer.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

constexpr double kEfficiencyPercent = 80;
constexpr double kNoise = 0.03;
constexpr int kStudies = 2000;
constexpr int kStudiesPerFile = 20;

using Random = std::mt19937_64;

// Factor of a repetition's step time, with the standard deviation kNoise.
double Normal(Random& random) {
  return 1 + kNoise * std::normal_distribution<double>()(random);
}

// The distribution with 3 degrees of freedom has the variance 3.
double Student3(Random& random) {
  const double t = std::student_t_distribution<double>(3)(random);
  return std::exp(kNoise * t / std::sqrt(3));
}

// Interference only adds time: usually little, sometimes much.
double Interference(Random& random) {
  const double e = std::exp(1.0), deviation = std::sqrt((e - 1) * e);
  return 1 +
         kNoise / deviation * std::lognormal_distribution<double>(0, 1)(random);
}

struct Noise {
  const char* name;
  double (*draw)(Random& random);
  double ddp_spread = 1;  // relative to the base case's
};

constexpr Noise kNoises[] = {{"normal", Normal},
                             {"Student with 3 degrees of freedom", Student3},
                             {"lognormal interference", Interference},
                             {"normal, ddp 3 times as noisy", Normal, 3}};

// Studies are separated by their learning rate.
void WriteRun(const RunForTest& made, int study, RecordWriter& writer) {
  RunTrace run = MakeRun(made);
  for (RankTrace& rank : run.ranks) {
    rank.run.flags["lr"] = absl::StrCat(study);
    SetConfigHashes(&rank.run);
    ASSERT_TRUE(writer.Write(Record(rank.run)).ok());
    ASSERT_TRUE(writer.Write(rank.steps).ok());
  }
}

void WriteStudies(const std::string& path, const Noise& noise,
                  int64_t repetitions, Random& random) {
  auto writer = RecordWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int study = 0; study < kStudiesPerFile; ++study) {
    for (int64_t i = 0; i < repetitions; ++i) {
      const std::string id = absl::StrCat(study, "-", i);
      WriteRun({.binary = "single",
                .step_seconds = 0.1 * noise.draw(random),
                .steps = kMinMeasuredSteps,
                .run_id = "single-" + id},
               study, **writer);
      const double factor = 1 + noise.ddp_spread * (noise.draw(random) - 1);
      WriteRun({.world_size = 2,
                .step_seconds = 0.1 / (kEfficiencyPercent / 100) * factor,
                .steps = kMinMeasuredSteps,
                .run_id = "ddp-" + id},
               study, **writer);
    }
  }
  ASSERT_TRUE((*writer)->Close().ok());
}

// Returns how many of the intervals printed for the studies in `path` contain
// the true value.
int CountCovering(const std::string& path) {
  auto runs = LoadRuns(path);
  EXPECT_TRUE(runs.ok()) << runs.status();
  AnswerConfig config;
  config.throughput.warmup_steps = 0;
  config.bootstrap.resamples = 1;  // scaling laws are not tested here
  const std::string text =
      TableText(TablesOf(*Analyze(*std::move(runs), config)).front());
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  int studies = 0, covering = 0;
  for (const std::string& line : lines) {
    const size_t at = line.find('[');
    if (!absl::StartsWith(line, "ddp ") || at == std::string::npos) continue;
    double low = 0, high = 0;
    EXPECT_EQ(std::sscanf(&line[at], "[%lf, %lf]", &low, &high), 2) << line;
    ++studies;
    covering += low <= kEfficiencyPercent && kEfficiencyPercent <= high;
  }
  EXPECT_EQ(studies, kStudiesPerFile) << text;
  return covering;
}

class Coverage : public testing::TestWithParam<Noise> {};

TEST_P(Coverage, IsThatOfAnIntervalOf95Percent) {
  const std::string path =
      absl::StrCat(testing::TempDir(), "/", GetParam().name, ".jsonl");
  Random random(1);
  for (int64_t repetitions = 2; repetitions <= 10; ++repetitions) {
    int covering = 0;
    for (int done = 0; done < kStudies; done += kStudiesPerFile) {
      std::filesystem::remove(path);
      WriteStudies(path, GetParam(), repetitions, random);
      covering += CountCovering(path);
    }
    const double percent = 100.0 * covering / kStudies;
    std::printf("%s, %d repetitions: %.1f %%\n", GetParam().name,
                static_cast<int>(repetitions), percent);
    EXPECT_GE(percent, 93) << repetitions << " repetitions";
    EXPECT_LE(percent, 98.5) << repetitions << " repetitions";
  }
}

INSTANTIATE_TEST_SUITE_P(Noise, Coverage, testing::ValuesIn(kNoises));

}  // namespace
}  // namespace rankwise
