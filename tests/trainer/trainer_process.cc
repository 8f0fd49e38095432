#include "tests/trainer/trainer_process.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "records/record_reader.h"

namespace rankwise {

namespace {

std::unique_ptr<TestProcess> Start(
    const std::string& binary, const Flags& flags,
    const std::vector<std::string>& environment) {
  return std::make_unique<TestProcess>(Joined({Runfile(binary)}, flags),
                                       environment);
}

}  // namespace

Flags Joined(Flags first, const Flags& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Finished Finish(TestProcess& process, absl::Duration patience) {
  Finished finished;
  finished.code = process.Wait(patience);
  finished.out = process.Stdout();
  finished.err = process.Stderr();
  return finished;
}

std::unique_ptr<TestProcess> StartTrainer(
    const std::string& name, const Flags& flags,
    const std::vector<std::string>& environment) {
  return Start(absl::StrCat("trainers/", name), flags, environment);
}

Finished RunTrainer(const std::string& name, const Flags& flags,
                    const std::vector<std::string>& environment,
                    absl::Duration patience) {
  return Finish(*StartTrainer(name, flags, environment), patience);
}

std::string OutputOf(const std::string& name, const Flags& flags,
                     const std::vector<std::string>& environment) {
  const Finished run = RunTrainer(name, flags, environment);
  EXPECT_EQ(run.code, 0) << run.err;
  return run.out;
}

std::unique_ptr<TestProcess> StartCommBench(
    const Flags& flags, const std::vector<std::string>& environment) {
  return Start("comm_bench/comm_bench", flags, environment);
}

Finished RunCommBench(const Flags& flags,
                      const std::vector<std::string>& environment) {
  return Finish(*StartCommBench(flags, environment));
}

std::vector<pid_t> ChildrenOf(pid_t launcher) {
  std::ifstream file(
      absl::StrCat("/proc/", launcher, "/task/", launcher, "/children"));
  std::vector<pid_t> children;
  for (pid_t pid; file >> pid;) children.push_back(pid);
  return children;
}

std::vector<pid_t> RanksAfterSteps(const TestProcess& launcher, int steps) {
  EXPECT_TRUE(launcher.AwaitOutput("  step ", steps)) << launcher.Stderr();
  return ChildrenOf(launcher.pid());
}

std::vector<Record> RecordsIn(const std::string& path) {
  absl::StatusOr<std::vector<Record>> records = ReadRecords(path);
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? *records : std::vector<Record>{};
}

Losses LossesOf(const std::string& path, int64_t rank) {
  Losses losses;
  for (const StepRecord& step : RecordsOf<StepRecord>(path)) {
    if (step.rank == rank) losses[step.step] = step.loss;
  }
  return losses;
}

Losses MeanLosses(const std::string& path, int64_t world_size) {
  Losses means;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    for (const auto& [step, loss] : LossesOf(path, rank)) {
      means[step] += loss / static_cast<double>(world_size);
    }
  }
  return means;
}

}  // namespace rankwise
