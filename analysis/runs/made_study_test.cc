#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/made_study_for_test.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"

namespace rankwise {
namespace {

std::string MakeFolder(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  return path;
}

int64_t PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

int64_t CountRecords(const std::vector<RunTrace>& runs) {
  size_t records = 0;
  for (const RunTrace& run : runs) {
    for (const RankTrace& rank : run.ranks) {
      records += rank.steps.size() + rank.schedules.size();
    }
  }
  return static_cast<int64_t>(records);
}

TEST(MadeStudy, IsSummarisedWithItsTruthInHalfAKilobyteARecord) {
  constexpr int64_t kRecords = 50'000;
  const std::string dir = MakeFolder("made");
  const absl::Status made = WriteMadeStudy(dir, {.records = kRecords});
  ASSERT_TRUE(made.ok()) << made;
  const int64_t before = PeakBytes();
  const auto runs = LoadRuns(dir);
  ASSERT_TRUE(runs.ok()) << runs.status();
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(*runs, {}, &left_out);
  const int64_t grown = PeakBytes() - before;

  EXPECT_GE(CountRecords(*runs), kRecords);
  EXPECT_LT(CountRecords(*runs), kRecords + 100);
  EXPECT_TRUE(left_out.empty()) << left_out[0];
  ASSERT_EQ(cells.size(), 4u);
  for (const Throughput& run : cells[0].repetitions) {
    EXPECT_NEAR(run.step_seconds / kMadeSingleStepSeconds, 1, 0.002);
  }
  // Differences between the ranks' steps do not accumulate.
  for (const Throughput& run : cells[1].repetitions) {
    EXPECT_NEAR(run.step_seconds / kMadeDdpStepSeconds, 1, 0.002);
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  EXPECT_LT(grown, 512 * kRecords);
}

TEST(MadeStudy, EqualSeedsWriteEqualBytes) {
  const std::string dirs[] = {MakeFolder("made_once"), MakeFolder("made_twice"),
                              MakeFolder("made_otherwise")};
  std::string texts[3];
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        WriteMadeStudy(dirs[i], {.records = 100, .seed = i == 2 ? 1u : 0u})
            .ok());
    std::ifstream file(dirs[i] + "/ddp-x2-weak-2.jsonl");
    texts[i].assign(std::istreambuf_iterator<char>(file), {});
  }
  EXPECT_FALSE(texts[0].empty());
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0], texts[2]);
}

TEST(MadeStudy, AFolderThatIsMissingIsNamed) {
  EXPECT_FALSE(WriteMadeStudy(testing::TempDir() + "/nowhere", {}).ok());
}

}  // namespace
}  // namespace rankwise
