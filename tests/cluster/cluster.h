// Several emulated hosts on this machine, for tests; created by cluster.sh.
#ifndef RANKWISE_TESTS_CLUSTER_CLUSTER_H_
#define RANKWISE_TESTS_CLUSTER_CLUSTER_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/test_process.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {

// Hosts host1, host2, ... They, and all of their processes, end with this
// object, even if the test is killed.
class Cluster {
 public:
  struct Options {
    int hosts = 2;
    std::string rate;  // of each host's link, in tc's units; "" for no limit
  };
  explicit Cluster(const Options& options);

  // Returns why this machine does not permit hosts, as printed by cluster.sh;
  // "" if it does.
  const std::string& why_not() const { return why_not_; }

  // Starts a shell command on `host`, in the test's folder.
  std::unique_ptr<TestProcess> Start(const std::string& host,
                                     const std::string& command) const;
  // Runs the command to its end. Fails the test after 50 s.
  Finished Run(const std::string& host, const std::string& command) const;

  // Disconnects or reconnects the host's cable at the switch.
  void SetLink(int host, bool is_up) const;
  // Powers the host off: it disappears instantly.
  void Destroy(int host) const;
  // Returns the names of the programs running on `host`.
  std::vector<std::string> ProgramsOn(int host) const;

 private:
  std::vector<std::string> Enter(const std::string& command) const;
  std::string RunOutside(const std::string& command) const;

  TestProcess process_;
  std::string why_not_;
  pid_t first_ = -1;  // a process of the cluster
};

// Returns the command that starts torchrun on a host, "PYTHON -m
// torch.distributed.run --no-python"; "" if no Python has torch, with the
// reason in *why_not.
std::string Torchrun(const Cluster& cluster, std::string* why_not);

// Skips the tests, with the reason, if there can be no hosts.
class ClusterTest : public ::testing::Test {
 protected:
  virtual Cluster::Options options() const { return {}; }
  void SetUp() override;
  const Cluster& cluster() const { return *cluster_; }

 private:
  std::unique_ptr<Cluster> cluster_;
};

using Ranks = std::vector<std::unique_ptr<TestProcess>>;

// Starts a command once per rank, `per_host` ranks on each of the first `hosts`
// hosts, with torchrun's variables and the additional `variables`.
Ranks StartRanks(const Cluster& cluster, int hosts, int per_host,
                 const std::string& command, const std::string& variables = "");

// Returns the number of hosts of the job in the record file; 0 without a job.
int64_t HostsOf(const std::string& record);
// Returns that of each run of a study: "ddp-x2-batch16-rep1" -> 2.
std::map<std::string, int64_t> HostsOfEach(const std::string& study_folder);

// Flags of a study that trains a small gpt; must be followed by its output
// folder.
inline constexpr char kShortStudyOfLayouts[] =
    "--model=gpt "
    "--trainer_flags='--depth=2 --width=64 --sequence_length=32' "
    "--batch_size=32 --microbatches=4 --backend=gloo --repetitions=1 "
    "--max_steps=7 --warmup_steps=2 --threads=1 --ablations=0 "
    "--comm_bench=false --report=false --output_dir=";

// Checks that each of the ranks `those` of the trainer ddp ends within 20 s
// with an error that matches `regex`.
void ExpectErrors(const Ranks& ranks, const std::vector<int>& those,
                  const std::string& regex);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_CLUSTER_CLUSTER_H_
