// Several hosts on this machine, for tests: cluster.sh makes them.
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

// host1, host2, ... They, and all that runs there, end with this object, and
// also if the test is killed.
class Cluster {
 public:
  struct Options {
    int hosts = 2;
    std::string rate;  // of each host's link, as tc takes it; empty: no limit
  };
  explicit Cluster(const Options& options);

  // Why this machine allows none, as cluster.sh says; empty: it does.
  const std::string& why_not() const { return why_not_; }

  // A shell command on `host`, in the test's folder.
  std::unique_ptr<TestProcess> Start(const std::string& host,
                                     const std::string& command) const;
  // Its end. Fails the test after 50 s.
  Finished Run(const std::string& host, const std::string& command) const;

  // Pulls and plugs the host's cable at the switch.
  void SetLink(int host, bool is_up) const;
  // Power off: the host is gone from one moment to the next.
  void Destroy(int host) const;
  // The names of the programs that run on `host`.
  std::vector<std::string> ProgramsOn(int host) const;

 private:
  std::vector<std::string> Enter(const std::string& command) const;
  std::string RunOutside(const std::string& command) const;

  TestProcess process_;
  std::string why_not_;
  pid_t first_ = -1;  // process of the cluster
};

// What starts torchrun on a host, "PYTHON -m torch.distributed.run
// --no-python"; "" where no Python has torch, and *why_not says so.
std::string Torchrun(const Cluster& cluster, std::string* why_not);

// A test that is skipped, with the reason, where there can be no hosts.
class ClusterTest : public ::testing::Test {
 protected:
  virtual Cluster::Options options() const { return {}; }
  void SetUp() override;
  const Cluster& cluster() const { return *cluster_; }

 private:
  std::unique_ptr<Cluster> cluster_;
};

using Ranks = std::vector<std::unique_ptr<TestProcess>>;

// A command once per rank, `per_host` of them on each of the first `hosts`
// hosts, with the variables that torchrun sets. `variables` are more of them.
Ranks StartRanks(const Cluster& cluster, int hosts, int per_host,
                 const std::string& command, const std::string& variables = "");

// The hosts of the job whose records the file has; 0: it has none.
int64_t HostsOf(const std::string& record);
// That of each run of a study: "ddp-x2-batch16-rep1" -> 2.
std::map<std::string, int64_t> HostsOfEach(const std::string& study_folder);

// Flags of a study that trains a small gpt; the folder of its output follows.
inline constexpr char kShortStudyOfLayouts[] =
    "--model=gpt "
    "--trainer_flags='--depth=2 --width=64 --sequence_length=32' "
    "--batch_size=32 --microbatches=4 --backend=gloo --repetitions=1 "
    "--max_steps=7 --warmup_steps=2 --threads=1 --ablations=0 "
    "--comm_bench=false --report=false --output_dir=";

// Each of `those` ranks of the trainer ddp ends within 20 s with an error that
// matches `regex`.
void ExpectErrors(const Ranks& ranks, const std::vector<int>& those,
                  const std::string& regex);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_CLUSTER_CLUSTER_H_
