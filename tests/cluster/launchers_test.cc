// Tests the launchers of real clusters, on two hosts with two ranks each: the
// losses must equal those of --nproc=4 on one host, bit by bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int kRanks = 4;

Flags FlagsFor(const std::string& record) {
  return {"--model=mlp",     "--train_size=384",
          "--batch_size=32", "--epochs=1",
          "--eval=false",    "--threads=1",
          "--backend=gloo",  absl::StrCat("--record=", record)};
}

std::string Ddp(const std::string& record) {
  return absl::StrCat("trainers/ddp ", absl::StrJoin(FlagsFor(record), " "));
}

// Returns the losses by rank.
std::vector<Losses> AllLosses(const std::string& record, int ranks = kRanks) {
  std::vector<Losses> losses;
  for (int rank = 0; rank < ranks; ++rank)
    losses.push_back(LossesOf(record, rank));
  return losses;
}

const std::vector<Losses>& LossesOnOneHost(int ranks = kRanks) {
  static auto& known = *new std::map<int, std::vector<Losses>>;
  std::vector<Losses>& losses = known[ranks];
  if (losses.empty()) {
    const std::string record = TemporaryPath("one_host.jsonl");
    Flags flags = FlagsFor(record);
    flags.push_back(absl::StrCat("--nproc=", ranks));
    EXPECT_EQ(RunTrainer("ddp", flags).code, 0);
    losses = AllLosses(record, ranks);
    EXPECT_FALSE(losses[0].empty());
  }
  return losses;
}

class LaunchersTest : public ClusterTest {
 protected:
  const std::string record_ = TemporaryPath("record.jsonl");
};

TEST_F(LaunchersTest, RankVariablesSetByHand) {
  const auto ranks = StartRanks(cluster(), 2, 2, Ddp(record_));
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  EXPECT_EQ(AllLosses(record_), LossesOnOneHost());
}

// Debian's installer maps the machine's own name to its loopback.
TEST_F(LaunchersTest, AMachineWhoseNameLeadsToItsLoopback) {
  for (const std::string host : {"host1", "host2"}) {
    const Finished done = cluster().Run(
        host,
        "grep -v $(hostname) /etc/hosts > /run/hosts.$(hostname) && "
        "echo 127.0.1.1 $(hostname) >> /run/hosts.$(hostname) && "
        "mount --bind /run/hosts.$(hostname) /etc/hosts");
    ASSERT_EQ(done.code, 0) << done.err;
  }
  const auto ranks =
      StartRanks(cluster(), 2, 2, Ddp(record_), "GLOO_SOCKET_IFNAME=");
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  EXPECT_EQ(AllLosses(record_), LossesOnOneHost());
}

class MpirunTest : public LaunchersTest {
 protected:
  void SetUp() override {
    LaunchersTest::SetUp();
    if (IsSkipped()) return;
    if (cluster().Run("host1", "command -v mpirun").code != 0)
      GTEST_SKIP() << "mpirun is missing (apt-get install openmpi-bin)";
  }

  Finished RunWithMpi(const std::string& command) const {
    return cluster().Run(
        "host1",
        absl::StrCat("export TMPDIR=/run OMPI_ALLOW_RUN_AS_ROOT=1 "
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                     "OMPI_MCA_plm_rsh_agent=$PWD/tests/cluster/on_host.sh "
                     "OMPI_MCA_btl_tcp_if_include=eth0 "
                     "OMPI_MCA_oob_tcp_if_include=eth0; ",
                     command));
  }
};

TEST_F(MpirunTest, OverGloo) {
  // The port is derived from mpirun's job number, the address is not.
  const Finished run = RunWithMpi(absl::StrCat(
      "mpirun -np 4 -H host1:2,host2:2 -x MASTER_ADDR=host1 ", Ddp(record_)));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(AllLosses(record_), LossesOnOneHost());
}

TEST_F(MpirunTest, StartsTheRunsOfAStudy) {
  const std::string folder = TemporaryPath("study");
  const Finished study = RunWithMpi(absl::StrCat(
      "analysis/study/study --hosts=host1,host2 --ranks_per_host=2 "
      "--world_sizes=2,4 --trainers=ddp --scaling=weak --model=mlp "
      "--backend=gloo --repetitions=1 --max_steps=7 --warmup_steps=2 "
      "--batch_size=16 --threads=1 --ablations=0 --comm_bench=false "
      "--report=false --output_dir=",
      folder));
  EXPECT_EQ(study.code, 0) << study.out << study.err;
  EXPECT_EQ(HostsOf(folder + "/ddp-x2-batch16-rep1.jsonl"), 1);
  EXPECT_EQ(HostsOf(folder + "/ddp-x4-batch16-rep1.jsonl"), 2);
}

TEST_F(MpirunTest, StartsTheLayoutsOfAStudy) {
  const std::string folder = TemporaryPath("layouts");
  const Finished study = RunWithMpi(absl::StrCat(
      "analysis/study/study --hosts=host1,host2 --ranks_per_host=2 "
      "--world_sizes=4 --layouts=ddp,zero3,tp2xpp2 --schedules=1f1b "
      "--scaling=strong ",
      kShortStudyOfLayouts, folder));
  EXPECT_EQ(study.code, 0) << study.out << study.err;
  EXPECT_THAT(study.out, HasSubstr("\nhybrid pp2xtp2 1f1b  strong "));
  EXPECT_THAT(HostsOfEach(folder),
              ElementsAre(Pair("ddp-x4-batch8-rep1", 2),
                          Pair("fsdp-zero3-x4-batch8-rep1", 2),
                          Pair("hybrid-pp2xtp2-1f1b-x4-batch4x8-rep1", 2),
                          Pair("single-x1-batch32-rep1", 1)));
}

// Two ranks: sums of more depend on the order.
TEST_F(MpirunTest, OverMpi) {
  const Finished run = RunWithMpi(
      absl::StrCat("mpirun -np 2 -H host1:1,host2:1 -x MASTER_ADDR=host1 ",
                   Ddp(record_), " --backend=mpi"));
  if (absl::StrContains(run.err, "built without OpenMPI"))
    GTEST_SKIP() << run.err;
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(AllLosses(record_, 2), LossesOnOneHost(2));
  const Finished chosen = RunWithMpi(
      "mpirun -np 2 -H host1:1,host2:1 -x MASTER_ADDR=host1 trainers/ddp "
      "--model=mlp --max_steps=1 --eval=false --threads=1");
  EXPECT_THAT(chosen.out, HasSubstr("backend mpi, since mpirun")) << chosen.err;
}

class TorchrunTest : public LaunchersTest {
 protected:
  void SetUp() override {
    LaunchersTest::SetUp();
    if (IsSkipped()) return;
    std::string why_not;
    torchrun_ = Torchrun(cluster(), &why_not);
    if (torchrun_.empty()) GTEST_SKIP() << why_not;
  }

  // Runs the same command on both hosts; $NODE is 0 or 1.
  void RunOnBoth(const std::string& flags) {
    std::vector<std::unique_ptr<TestProcess>> agents;
    for (int node = 0; node < 2; ++node) {
      agents.push_back(cluster().Start(
          absl::StrCat("host", node + 1),
          absl::StrCat("NODE=", node, "; exec ", torchrun_,
                       " --nproc-per-node=2 ", flags, " ", Ddp(record_))));
    }
    for (const auto& agent : agents)
      EXPECT_EQ(agent->Wait(), 0) << agent->Stderr();
    EXPECT_EQ(AllLosses(record_), LossesOnOneHost());
  }

 private:
  std::string torchrun_;
};

TEST_F(TorchrunTest, C10dRendezvous) {
  RunOnBoth("--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host1:29400");
}

TEST_F(TorchrunTest, StaticRendezvous) {
  RunOnBoth(
      "--nnodes=2 --node-rank=$NODE --master-addr=host1 --master-port=29500");
}

TEST_F(TorchrunTest, ElasticNumberOfNodes) {
  RunOnBoth("--nnodes=1:2 --rdzv-backend=c10d --rdzv-endpoint=host1:29400");
}

}  // namespace
}  // namespace rankwise
