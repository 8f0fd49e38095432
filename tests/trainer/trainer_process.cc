#include "tests/trainer/trainer_process.h"

#include <gtest/gtest.h>

#include <fstream>
#include <variant>

#include "absl/strings/str_cat.h"
#include "records/record_reader.h"

namespace rankwise {

namespace {

std::unique_ptr<TestProcess> Start(
    const std::string& binary, const std::vector<std::string>& flags,
    const std::vector<std::string>& environment) {
  std::vector<std::string> argv = {Runfile(binary)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return std::make_unique<TestProcess>(argv, environment);
}

Finished Finish(TestProcess& process,
                absl::Duration patience = absl::Seconds(50)) {
  Finished finished;
  finished.code = process.Wait(patience);
  finished.out = process.Stdout();
  finished.err = process.Stderr();
  return finished;
}

}  // namespace

std::unique_ptr<TestProcess> StartTrainer(
    const std::string& name, const std::vector<std::string>& flags,
    const std::vector<std::string>& environment) {
  return Start(absl::StrCat("trainers/", name), flags, environment);
}

Finished RunTrainer(const std::string& name,
                    const std::vector<std::string>& flags,
                    const std::vector<std::string>& environment,
                    absl::Duration patience) {
  return Finish(*StartTrainer(name, flags, environment), patience);
}

std::unique_ptr<TestProcess> StartCommBench(
    const std::vector<std::string>& flags,
    const std::vector<std::string>& environment) {
  return Start("comm_bench/comm_bench", flags, environment);
}

Finished RunCommBench(const std::vector<std::string>& flags,
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

std::vector<Record> RecordsIn(const std::string& path) {
  absl::StatusOr<std::vector<Record>> records = ReadRecords(path);
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? *records : std::vector<Record>{};
}

std::map<int64_t, double> LossesOf(const std::string& path, int64_t rank) {
  std::map<int64_t, double> losses;
  for (const Record& record : RecordsIn(path)) {
    const auto* step = std::get_if<StepRecord>(&record);
    if (step != nullptr && step->rank == rank) losses[step->step] = step->loss;
  }
  return losses;
}

std::map<int64_t, double> MeanLosses(const std::string& path,
                                     int64_t world_size) {
  std::map<int64_t, double> means;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    for (const auto& [step, loss] : LossesOf(path, rank)) {
      means[step] += loss / static_cast<double>(world_size);
    }
  }
  return means;
}

}  // namespace rankwise
