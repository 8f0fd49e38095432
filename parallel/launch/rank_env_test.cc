#include "parallel/launch/rank_env.h"

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

EnvLookup Lookup(const Environment& environment) {
  return [environment](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

Environment Torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"}};
}

Environment OpenMpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_MCA_ess_base_jobid", "3512074241"}};
}

Environment Slurm() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NNODES", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
          {"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "2"}};
}

// Returns `base` with some variables replaced; "-" removes one.
Environment With(Environment base, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    if (value == "-") {
      base.erase(name);
    } else {
      base[name] = value;
    }
  }
  return base;
}

TEST(RankEnvTest, WithoutALauncherTheProcessIsAlone) {
  const absl::StatusOr<RankEnv> env = ReadRankEnv(Lookup({}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 0);
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->master_addr, "");
  EXPECT_EQ(env->launcher, "");
  EXPECT_FALSE(InsideLauncher(Lookup({})));
}

TEST(RankEnvTest, ReadsTorchrun) {
  const absl::StatusOr<RankEnv> env = ReadRankEnv(
      Lookup(With(Torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"TORCHELASTIC_MAX_RESTARTS", "3"},
                               {"GLOO_SOCKET_IFNAME", "eth1"},
                               {"CUDA_VISIBLE_DEVICES", "2"}})));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->visible_gpus, "2");
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->master_addr, "node0");
  EXPECT_EQ(env->master_port, 29500);
  EXPECT_TRUE(env->store_is_external);
  EXPECT_EQ(env->restart_count, 2);
  EXPECT_EQ(env->max_restarts, 3);
  EXPECT_TRUE(std::isnan(env->failed_unix_seconds));
  EXPECT_EQ(env->network_interface, "eth1");
  EXPECT_EQ(env->launcher, "torchrun");
  EXPECT_TRUE(InsideLauncher(Lookup(Torchrun())));
}

TEST(RankEnvTest, TellsItsOwnLauncherFromTorchrun) {
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv(Lookup(With(Torchrun(), {{"RANKWISE_LAUNCHER", "1"},
                                           {"RANKWISE_RESTART_CAUSE", "it"},
                                           {"RANKWISE_FAILED_AT", "12.5"},
                                           {"RANKWISE_STARTED_AT", "2.25"}})));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->launcher, "nproc");
  EXPECT_EQ(env->restart_cause, "it");
  EXPECT_EQ(env->failed_unix_seconds, 12.5);
  EXPECT_EQ(env->started_unix_seconds, 2.25);
  EXPECT_FALSE(env->store_is_external);
}

TEST(RankEnvTest, AllRanksAreLocalWhenTheMasterIsTheLoopback) {
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv(Lookup(With(Torchrun(), {{"LOCAL_RANK", "-"},
                                           {"LOCAL_WORLD_SIZE", "-"},
                                           {"MASTER_ADDR", "127.0.0.1"}})));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->local_rank, 3);
  EXPECT_EQ(env->local_world_size, 4);
}

TEST(RankEnvTest, AWorldOfOneNeedsNoMaster) {
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv(Lookup({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->master_port, 0);
}

TEST(RankEnvTest, AFileStoreNeedsNoMaster) {
  RankEnvOptions options;
  options.master_required = false;
  const Environment environment =
      With(Torchrun(), {{"MASTER_ADDR", "-"}, {"MASTER_PORT", "-"}});
  EXPECT_TRUE(ReadRankEnv(Lookup(environment), options).ok());
}

TEST(RankEnvTest, ReadsOpenMpiAndMeetsOnTheLoopbackOfOneMachine) {
  const absl::StatusOr<RankEnv> env = ReadRankEnv(Lookup(OpenMpi()));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 1);
  EXPECT_EQ(env->world_size, 2);
  EXPECT_EQ(env->launcher, "mpirun");
  EXPECT_EQ(env->master_addr, "127.0.0.1");
  EXPECT_GE(env->master_port, 12000);
  EXPECT_LT(env->master_port, 32000);
  EXPECT_FALSE(env->store_is_external);
}

TEST(RankEnvTest, PmixServesARankUnderItsOwnNumberOnly) {
  const auto has_pmix = [](const Environment& base, const char* rank) {
    return ReadRankEnv(Lookup(With(base, {{"PMIX_RANK", rank}})))->has_pmix;
  };
  EXPECT_TRUE(has_pmix(OpenMpi(), "1"));
  EXPECT_FALSE(has_pmix(OpenMpi(), "0"));
  EXPECT_FALSE(ReadRankEnv(Lookup(OpenMpi()))->has_pmix);
  const std::string own = std::to_string(ReadRankEnv(Lookup(Torchrun()))->rank);
  // PMIX_RANK belongs to the enclosing step.
  EXPECT_FALSE(has_pmix(Torchrun(), own.c_str()));
}

TEST(RankEnvTest, TorchrunInsideAnotherLauncherWins) {
  Environment environment = Torchrun();
  environment.merge(OpenMpi());
  environment.merge(Slurm());
  const absl::StatusOr<RankEnv> env = ReadRankEnv(Lookup(environment));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->launcher, "torchrun");
}

TEST(RankEnvTest, ReadsSlurmAndMeetsOnTheStepsFirstHost) {
  const absl::StatusOr<RankEnv> env = ReadRankEnv(Lookup(Slurm()));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->world_size, 7);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 3);
  EXPECT_EQ(env->master_addr, "gpu07");
  EXPECT_EQ(env->launcher, "srun");
  const absl::StatusOr<RankEnv> other_rank = ReadRankEnv(Lookup(With(
      Slurm(),
      {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}})));
  ASSERT_TRUE(other_rank.ok()) << other_rank.status();
  EXPECT_EQ(other_rank->local_world_size, 4);
  EXPECT_EQ(other_rank->master_port, env->master_port);
  const absl::StatusOr<RankEnv> other_step =
      ReadRankEnv(Lookup(With(Slurm(), {{"SLURM_STEP_ID", "3"}})));
  ASSERT_TRUE(other_step.ok()) << other_step.status();
  EXPECT_NE(other_step->master_port, env->master_port);
}

TEST(RankEnvTest, ReadsTheShortSlurmVariables) {
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv(Lookup({{"SLURM_PROCID", "0"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NTASKS_PER_NODE", "2"},
                          {"MASTER_ADDR", "node7"},
                          {"MASTER_PORT", "1234"}}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->master_addr, "node7");
}

TEST(RankEnvTest, AShellInsideASlurmAllocationIsNoRank) {
  const Environment salloc = {
      {"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}};
  const Environment batch_script =
      With(salloc, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  const Environment interactive_step =
      With(batch_script,
           {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967290"}});
  for (const Environment& shell : {salloc, batch_script, interactive_step}) {
    EXPECT_FALSE(InsideLauncher(Lookup(shell)));
    const absl::StatusOr<RankEnv> env = ReadRankEnv(Lookup(shell));
    ASSERT_TRUE(env.ok()) << env.status();
    EXPECT_EQ(env->world_size, 1);
    EXPECT_EQ(env->launcher, "");
  }
}

struct BadEnvironment {
  std::string name;
  Environment environment;
  std::string message;
};

std::vector<BadEnvironment> BadEnvironments() {
  return {
      {"RankWithoutWorldSize", With(Torchrun(), {{"WORLD_SIZE", "-"}}),
       "WORLD_SIZE is not set, but RANK is"},
      {"WorldSizeWithoutRank", With(Torchrun(), {{"RANK", "-"}}),
       "RANK is not set, but WORLD_SIZE is"},
      {"RankNotBelowWorldSize", With(Torchrun(), {{"RANK", "4"}}),
       "RANK=4 must be less than WORLD_SIZE=4"},
      {"RankIsNoNumber", With(Torchrun(), {{"RANK", "two"}}),
       "RANK='two' is not a number"},
      {"RankIsEmpty", With(Torchrun(), {{"RANK", ""}}),
       "RANK='' is not a number"},
      {"RankIsNegative", With(Torchrun(), {{"RANK", "-1"}}),
       "RANK=-1 is not between 0 and"},
      {"WorldSizeIsZero", With(Torchrun(), {{"WORLD_SIZE", "0"}}),
       "WORLD_SIZE=0 is not between 1 and"},
      {"WorldSizeIsNoNumber", With(Torchrun(), {{"WORLD_SIZE", "4.5"}}),
       "WORLD_SIZE='4.5' is not a number"},
      {"LocalRankMissing", With(Torchrun(), {{"LOCAL_RANK", "-"}}),
       "LOCAL_RANK is not set, but LOCAL_WORLD_SIZE is"},
      {"LocalWorldSizeMissing", With(Torchrun(), {{"LOCAL_WORLD_SIZE", "-"}}),
       "LOCAL_WORLD_SIZE is not set, but LOCAL_RANK is"},
      {"LocalRankTooLarge", With(Torchrun(), {{"LOCAL_RANK", "2"}}),
       "LOCAL_RANK=2 must be less than LOCAL_WORLD_SIZE=2"},
      {"LocalWorldSizeTooLarge", With(Torchrun(), {{"LOCAL_WORLD_SIZE", "5"}}),
       "LOCAL_WORLD_SIZE=5 exceeds WORLD_SIZE=4"},
      {"LocalRankAboveRank", With(Torchrun(), {{"RANK", "0"}}),
       "LOCAL_RANK=1 exceeds RANK=0"},
      {"LocalVariablesMissingOnSeveralMachines",
       With(Torchrun(), {{"LOCAL_RANK", "-"}, {"LOCAL_WORLD_SIZE", "-"}}),
       "LOCAL_RANK and LOCAL_WORLD_SIZE are not set"},
      {"LocalRankAlone",
       {{"LOCAL_RANK", "1"}},
       "LOCAL_RANK=1 is set, but RANK and WORLD_SIZE are not"},
      {"MasterAddrMissing", With(Torchrun(), {{"MASTER_ADDR", "-"}}),
       "MASTER_ADDR is not set, so rank 3 of 4"},
      {"MasterPortMissing", With(Torchrun(), {{"MASTER_PORT", "-"}}),
       "MASTER_PORT is not set"},
      {"MasterPortIsNoNumber", With(Torchrun(), {{"MASTER_PORT", "http"}}),
       "MASTER_PORT='http' is not a number"},
      {"MasterPortOutOfRange", With(Torchrun(), {{"MASTER_PORT", "65536"}}),
       "MASTER_PORT=65536 is not a port"},
      {"RestartCountIsNoNumber",
       With(Torchrun(), {{"TORCHELASTIC_RESTART_COUNT", "x"}}),
       "TORCHELASTIC_RESTART_COUNT='x' is not a number"},
      {"OpenMpiSizeMissing", With(OpenMpi(), {{"OMPI_COMM_WORLD_SIZE", "-"}}),
       "OMPI_COMM_WORLD_SIZE is not set"},
      {"OpenMpiRankTooLarge", With(OpenMpi(), {{"OMPI_COMM_WORLD_RANK", "2"}}),
       "OMPI_COMM_WORLD_RANK=2 must be less than"},
      {"OpenMpiOnSeveralMachinesWithoutMaster",
       With(OpenMpi(), {{"OMPI_COMM_WORLD_SIZE", "4"}}),
       "mpirun -x MASTER_ADDR=host"},
      {"SlurmTasksMissing",
       With(Slurm(), {{"SLURM_STEP_NUM_TASKS", "-"}, {"SLURM_NTASKS", "-"}}),
       "SLURM_NTASKS is not set, but SLURM_PROCID is"},
      {"SlurmRankTooLarge", With(Slurm(), {{"SLURM_PROCID", "7"}}),
       "SLURM_PROCID=7 must be less than"},
      {"SlurmLocalIdMissing", With(Slurm(), {{"SLURM_LOCALID", "-"}}),
       "SLURM_LOCALID is not set"},
      {"SlurmTasksPerNodeMalformed",
       With(Slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "4(y2)"}}),
       "SLURM_STEP_TASKS_PER_NODE='4(y2)' does not say"},
      {"SlurmTasksPerNodeMissing",
       With(Slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "-"}}),
       "the number of local ranks is unknown"},
      {"SlurmNodesUnknown", With(Slurm(), {{"SLURM_STEP_NODELIST", "-"}}),
       "MASTER_ADDR is not set, so rank 5 of 7"}};
}

class BadEnvironmentTest : public ::testing::TestWithParam<BadEnvironment> {};

TEST_P(BadEnvironmentTest, IsRefusedByName) {
  const EnvLookup lookup = Lookup(GetParam().environment);
  const absl::StatusOr<RankEnv> env = ReadRankEnv(lookup);
  ASSERT_FALSE(env.ok());
  EXPECT_EQ(env.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(env.status().message()),
      AllOf(HasSubstr("rank environment: "), HasSubstr(GetParam().message)));
  EXPECT_TRUE(InsideLauncher(lookup)) << "--nproc would hide the error";
}

INSTANTIATE_TEST_SUITE_P(
    All, BadEnvironmentTest, ::testing::ValuesIn(BadEnvironments()),
    [](const ::testing::TestParamInfo<BadEnvironment>& info) {
      return info.param.name;
    });

TEST(SlurmTest, FindsTheFirstHostOfANodeList) {
  const auto first_of = [](const std::string& list) {
    const auto env =
        ReadRankEnv(Lookup(With(Slurm(), {{"SLURM_STEP_NODELIST", list}})),
                    {.master_required = false});
    return env.ok() ? env->master_addr : std::string(env.status().message());
  };
  EXPECT_EQ(first_of("node1"), "node1");
  EXPECT_EQ(first_of("node1,node2"), "node1");
  EXPECT_EQ(first_of("gpu[07-09,12],login1"), "gpu07");
  EXPECT_EQ(first_of("gpu[3,5]"), "gpu3");
  EXPECT_EQ(first_of("a-[1-2]-ib"), "a-1-ib");
  EXPECT_EQ(first_of("rack[1-2]n[04-08]"), "rack1n04");
  EXPECT_EQ(first_of("gpu[07"), "");
  EXPECT_EQ(first_of(""), "");
}

TEST(SlurmTest, FindsTheTasksOfItsNode) {
  const auto tasks = [](const std::string& list, int node) {
    const auto env = ReadRankEnv(
        Lookup(With(Slurm(), {{"SLURM_STEP_TASKS_PER_NODE", list},
                              {"SLURM_NODEID", std::to_string(node)}})));
    return env.ok() ? env->local_world_size : -1;
  };
  EXPECT_EQ(tasks("4", 0), 4);
  EXPECT_EQ(tasks("4(x2),3", 0), 4);
  EXPECT_EQ(tasks("4(x2),3", 1), 4);
  EXPECT_EQ(tasks("4(x2),3", 2), 3);
  EXPECT_EQ(tasks("4(x2),3", 3), -1);
  EXPECT_EQ(tasks("4(x", 0), -1);
  EXPECT_EQ(tasks("4(xx)", 0), -1);
  EXPECT_EQ(tasks("", 0), -1);
}

}  // namespace
}  // namespace rankwise
