// The binaries as a user runs them: real processes, whose records and messages
// the tests read.
#ifndef RANKWISE_TESTS_TRAINER_TRAINER_PROCESS_H_
#define RANKWISE_TESTS_TRAINER_TRAINER_PROCESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/test_process.h"
#include "records/record.h"

namespace rankwise {

struct Finished {
  int code = 0;
  std::string out;
  std::string err;
};

// `name`: a target in //trainers, such as ddp.
std::unique_ptr<TestProcess> StartTrainer(
    const std::string& name, const std::vector<std::string>& flags,
    const std::vector<std::string>& environment = {});
// Code -1 if it still runs after `patience`.
Finished RunTrainer(const std::string& name,
                    const std::vector<std::string>& flags,
                    const std::vector<std::string>& environment = {},
                    absl::Duration patience = absl::Seconds(50));

// The same for the communication benchmark.
std::unique_ptr<TestProcess> StartCommBench(
    const std::vector<std::string>& flags,
    const std::vector<std::string>& environment = {});
Finished RunCommBench(const std::vector<std::string>& flags,
                      const std::vector<std::string>& environment = {});

// The process ids of a launcher's ranks.
std::vector<pid_t> ChildrenOf(pid_t launcher);

// All records of a file; fails the test if it cannot be read.
std::vector<Record> RecordsIn(const std::string& path);

// Step -> loss of one rank, as the last run in the file recorded it.
std::map<int64_t, double> LossesOf(const std::string& path, int64_t rank);

// Step -> loss, the mean over all ranks of the file.
std::map<int64_t, double> MeanLosses(const std::string& path,
                                     int64_t world_size);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_TRAINER_TRAINER_PROCESS_H_
