// Runs the binaries as real processes; tests read their records and messages.
#ifndef RANKWISE_TESTS_TRAINER_TRAINER_PROCESS_H_
#define RANKWISE_TESTS_TRAINER_TRAINER_PROCESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/test_process.h"
#include "records/record.h"

namespace rankwise {

using Flags = std::vector<std::string>;
using Losses = std::map<int64_t, double>;  // by step

// Joins flags; the value in `more` wins.
Flags Joined(Flags first, const Flags& more);

struct Finished {
  int code = 0;
  std::string out;
  std::string err;
};

// Waits for the process. Code -1 if it is still running after `patience`.
Finished Finish(TestProcess& process,
                absl::Duration patience = absl::Seconds(50));

// `name` is a target in //trainers, such as ddp.
std::unique_ptr<TestProcess> StartTrainer(
    const std::string& name, const Flags& flags,
    const std::vector<std::string>& environment = {});
Finished RunTrainer(const std::string& name, const Flags& flags,
                    const std::vector<std::string>& environment = {},
                    absl::Duration patience = absl::Seconds(50));
// Returns its stdout; fails the test unless it exits with 0.
std::string OutputOf(const std::string& name, const Flags& flags,
                     const std::vector<std::string>& environment = {});

// The same for the communication benchmark.
std::unique_ptr<TestProcess> StartCommBench(
    const Flags& flags, const std::vector<std::string>& environment = {});
Finished RunCommBench(const Flags& flags,
                      const std::vector<std::string>& environment = {});

// Returns the process ids of a launcher's ranks.
std::vector<pid_t> ChildrenOf(pid_t launcher);

// Returns them after `steps` steps have been printed; fails the test after 50
// s.
std::vector<pid_t> RanksAfterSteps(const TestProcess& launcher, int steps);

// Returns all records of a file; fails the test if it cannot be read.
std::vector<Record> RecordsIn(const std::string& path);

// Returns the records of kind T, in the order of the file.
template <typename T>
std::vector<T> RecordsOf(const std::string& path) {
  std::vector<T> found;
  for (const Record& record : RecordsIn(path)) {
    if (const auto* one = std::get_if<T>(&record)) found.push_back(*one);
  }
  return found;
}

// Returns the losses of one rank; later runs in the file replace earlier ones.
Losses LossesOf(const std::string& path, int64_t rank);

// Returns the mean losses over all ranks of the file.
Losses MeanLosses(const std::string& path, int64_t world_size);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_TRAINER_TRAINER_PROCESS_H_
