// Tests the device calls of a steady step of each trainer: docs/gpu.md, "A
// steady step", lists the counts; this test runs the commands there and
// compares.
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "parallel/device/device_facts.h"
#include "parallel/device/require_gpus.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

constexpr const char* kCounters[] = {"launches", "copies", "collectives",
                                     "events", "waits"};

struct Row {
  std::string command;
  std::vector<double> counts;  // in the order of kCounters
};

// Returns the rows `| \`command\` | count | ... |` after the heading.
std::vector<Row> DocumentedRows() {
  std::ifstream file(Runfile("docs/gpu.md"));
  std::vector<Row> rows;
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) found = line == "## A steady step";
    if (!found || line.rfind("| `", 0) != 0) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    Row row;
    row.command = cells[1].substr(2, cells[1].size() - 4);
    for (size_t i = 0; i < std::size(kCounters); ++i) {
      double count = -1;
      EXPECT_TRUE(absl::SimpleAtod(cells[i + 2], &count)) << line;
      row.counts.push_back(count);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns the mean of each counter over the ranks that launched any work.
std::vector<double> Count(const std::string& command, int steps) {
  std::vector<std::string> flags = absl::StrSplit(command, ' ');
  const std::string trainer = flags[0];
  flags.erase(flags.begin());
  flags.insert(flags.end(),
               {absl::StrCat("--max_steps=", steps), "--eval=false",
                "--epochs=1", "--train_size=8192", "--log_every=1000"});
  const std::string path = TemporaryPath("counts");
  const Finished run =
      RunTrainer(trainer, flags, {"RANKWISE_VIRTUAL_GPU_COUNTS=" + path});
  EXPECT_EQ(run.code, 0) << run.err;
  std::vector<double> sums(std::size(kCounters), 0);
  double ranks = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto counts = nlohmann::json::parse(line);
    if (counts["launches"] == 0) continue;  // the launcher
    ++ranks;
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += counts[kCounters[i]].get<double>();
  }
  for (double& sum : sums) sum /= ranks;
  return sums;
}

TEST(SteadyStepTest, AsksTheDeviceForWhatTheDocumentSays) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  if (GpusCompute()) GTEST_SKIP() << "virtual GPUs count, real ones do not";
  const std::vector<Row> rows = DocumentedRows();
  ASSERT_GE(rows.size(), 6u);
  constexpr int kSteps = 12;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.command);
    const std::vector<double> few = Count(row.command, kSteps);
    const std::vector<double> many = Count(row.command, 2 * kSteps);
    for (size_t i = 0; i < row.counts.size(); ++i) {
      const std::string counter = kCounters[i];
      const double a_step = (many[i] - few[i]) / kSteps;
      if (counter == "waits") {
        // Pipelines anchor the devices' clocks each second.
        constexpr double kAnchor = 1.0 / kSteps;
        EXPECT_NEAR(a_step, row.counts[i], 1.01 * kAnchor) << counter;
      } else if (counter == "events") {  // created if no event is free
        EXPECT_LE(a_step, 10 + 2 * row.counts[i]) << counter;
      } else {
        EXPECT_NEAR(a_step, row.counts[i], 0.5) << counter;
      }
    }
  }
}

}  // namespace
}  // namespace rankwise
