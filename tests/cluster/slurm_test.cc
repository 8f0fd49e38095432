// Tests Slurm, with a controller and a slurmd on each of two hosts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kSmallGpt[] =
    "--model=gpt --depth=2 --width=64 --sequence_length=32 --train_size=32 "
    "--batch_size=4 --microbatches=2 --epochs=1 --eval=false --threads=1 ";

class SlurmTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped()) return;
    const Finished started = cluster().Run("host1", "tests/cluster/slurm.sh");
    if (started.code == 77) GTEST_SKIP() << started.err;
    ASSERT_EQ(started.code, 0) << started.err;
  }

  // Runs a job and returns the mean losses of its ranks.
  std::map<int64_t, double> LossesOfJob(const std::string& command, int ranks) {
    const std::string record = TemporaryPath("record.jsonl");
    const Finished job =
        cluster().Run("host1", absl::StrCat(command, " --record=", record));
    EXPECT_EQ(job.code, 0) << job.err;
    return MeanLosses(record, ranks);
  }

  // Returns the output of a short study in a batch job with `options` of
  // sbatch.
  std::string RunStudyAsBatchJob(const std::string& options,
                                 const std::string& flags) {
    return RunAsBatchJob(
        options,
        absl::StrCat("analysis/study/study --model=mlp --repetitions=1 "
                     "--max_steps=7 --warmup_steps=2 --batch_size=16 "
                     "--threads=1 --ablations=0 --comm_bench=false ",
                     flags));
  }

  std::string RunAsBatchJob(const std::string& options,
                            const std::string& command) {
    const std::string script = TemporaryPath("job.sh");
    std::ofstream(script) << "#!/bin/bash\n#SBATCH --output=" << script
                          << ".out " << options << "\n"
                          << command << "\n";
    const Finished batch =
        cluster().Run("host1", absl::StrCat("sbatch --wait ", script));
    const std::string output =
        cluster().Run("host1", absl::StrCat("cat ", script, ".out")).out;
    EXPECT_EQ(batch.code, 0) << batch.err << output;
    return output;
  }
};

TEST_F(SlurmTest, RanksOfAStepFindEachOther) {
  const auto ddp = LossesOfJob(
      "srun --ntasks=4 trainers/ddp --model=mlp --train_size=256 "
      "--batch_size=32 --epochs=1 --eval=false --threads=1",
      4);
  EXPECT_EQ(ddp.size(), 2u);
  // One stage per host.
  const auto pipeline = LossesOfJob(
      absl::StrCat("srun --ntasks=2 --ntasks-per-node=1 trainers/pipeline ",
                   kSmallGpt),
      2);
  const auto hybrid = LossesOfJob(
      absl::StrCat("srun --ntasks=4 trainers/hybrid --pp=2 --tp=2 ", kSmallGpt),
      4);
  ASSERT_EQ(pipeline.size(), 4u);
  ASSERT_EQ(hybrid.size(), 4u);
  for (const auto& [step, loss] : pipeline)
    EXPECT_NEAR(hybrid.at(step), loss, 1e-4) << "step " << step;
}

TEST_F(SlurmTest, MpiConnectsTheRanksOfAStepBySlurmsPmix) {
  // srun writes the list to stderr.
  if (cluster().Run("host1", "srun --mpi=list 2>&1 | grep -w pmix").code != 0)
    GTEST_SKIP() << "this Slurm has no plugin for PMIx";
  constexpr char kDdp[] =
      "trainers/ddp --backend=mpi --model=mlp --train_size=256 "
      "--batch_size=32 --epochs=1 --eval=false --threads=1";
  const Finished refused =
      cluster().Run("host1", absl::StrCat("srun --ntasks=2 ", kDdp));
  EXPECT_GT(refused.code, 0);
  if (absl::StrContains(refused.err, "built without OpenMPI"))
    GTEST_SKIP() << refused.err;
  EXPECT_THAT(refused.err,
              HasSubstr("needs ranks started by --nproc, mpirun or srun "
                        "--mpi=pmix; this rank was started by srun"));
  const auto mpi =
      LossesOfJob(absl::StrCat("srun --mpi=pmix --ntasks=4 ", kDdp), 4);
  const auto gloo =
      LossesOfJob(absl::StrCat("srun --ntasks=4 ", kDdp, " --backend=gloo"), 4);
  ASSERT_EQ(mpi.size(), 2u);
  for (const auto& [step, loss] : gloo)
    EXPECT_NEAR(mpi.at(step), loss, 1e-5) << "step " << step;
}

TEST_F(SlurmTest, AStudyRunsAsABatchJob) {
  const std::string folder = TemporaryPath("study");
  const std::string output = RunStudyAsBatchJob(
      "--nodes=1", "--trainers=single,ddp --output_dir=" + folder);
  EXPECT_THAT(output, HasSubstr("\nddp "));
  EXPECT_TRUE(std::filesystem::exists(folder + "/report.html"));
}

// Compares memory, so that timing cannot fail the test.
TEST_F(SlurmTest, TheGateRunsAsABatchJob) {
  const std::string folder = TemporaryPath("gate");
  const std::string examples = "analysis/compare/examples/";
  const std::string flags =
      " --model=linear --repetitions=2 --max_steps=16 --threads=1";
  const auto run = [this](const std::string& command) {
    return cluster().Run("host1",
                         "RANKWISE_PROGRAMS=. GATE_THRESHOLD=50 "
                         "GATE_METRICS=peak_bytes " +
                             command);
  };
  const auto job = [&](const std::string& results, const std::string& more) {
    return run(absl::StrCat("sbatch --wait --output=", folder, ".out ",
                            "--export=ALL,BASELINE=", folder,
                            ",RESULTS=", TemporaryPath(results), " ", examples,
                            "slurm.sh", flags, more));
  };
  const Finished stored =
      run(absl::StrCat(examples, "gate.sh store ", folder, flags));
  ASSERT_EQ(stored.code, 0) << stored.err;
  const Finished same = job("same", "");
  EXPECT_EQ(same.code, 0) << same.err << run("cat " + folder + ".out").out;
  EXPECT_EQ(job("less", " --trainers=single").code, 3);
  EXPECT_THAT(run("cat " + folder + ".out").out,
              HasSubstr("### Performance: cannot say"));
}

TEST_F(SlurmTest, AStudyFillsTheNodesOfItsJob) {
  const std::string folder = TemporaryPath("study");
  RunStudyAsBatchJob("--nodes=2 --ntasks-per-node=2",
                     "--trainers=ddp --world_sizes=2,4 --scaling=weak "
                     "--report=false --output_dir=" +
                         folder);
  EXPECT_EQ(HostsOf(folder + "/ddp-x2-batch16-rep1.jsonl"), 1);
  EXPECT_EQ(HostsOf(folder + "/ddp-x4-batch16-rep1.jsonl"), 2);
}

TEST_F(SlurmTest, AStudyOfLayoutsFillsTheNodesOfItsJob) {
  const std::string folder = TemporaryPath("layouts");
  const std::string output = RunAsBatchJob(
      "--nodes=2 --ntasks-per-node=1",
      absl::StrCat("analysis/study/study --layouts=ddp,tp2,pp2 "
                   "--world_sizes=2 --schedules=1f1b --scaling=strong ",
                   kShortStudyOfLayouts, folder));
  EXPECT_THAT(output, HasSubstr("\ntensor_parallel  strong "));
  EXPECT_THAT(HostsOfEach(folder),
              ElementsAre(Pair("ddp-x2-batch16-rep1", 2),
                          Pair("pipeline-1f1b-x2-batch4x8-rep1", 2),
                          Pair("single-x1-batch32-rep1", 1),
                          Pair("tensor_parallel-x2-batch32-rep1", 2)));
}

TEST_F(SlurmTest, ACancelledJobLeavesNothing) {
  auto job = cluster().Start(
      "host1",
      "srun --job-name=long --ntasks=4 trainers/ddp --model=mlp "
      "--train_size=256 --batch_size=32 --epochs=1000000 --eval=false "
      "--threads=1 --log_every=1");
  ASSERT_TRUE(job->AwaitOutput("step", 3)) << job->Stderr();
  cluster().Run("host1", "scancel --name=long");
  EXPECT_GT(job->Wait(), 0);
  const Finished ended = cluster().Run(
      "host1", "until [[ -z $(squeue --noheader) ]]; do sleep 0.1; done");
  EXPECT_EQ(ended.code, 0);
  for (const int host : {1, 2}) {
    for (const std::string& program : cluster().ProgramsOn(host))
      EXPECT_NE(program, "ddp") << "on host" << host;
  }
}

}  // namespace
}  // namespace rankwise
