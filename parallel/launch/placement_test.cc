#include "parallel/launch/placement.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/backends/backends.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

const Hardware kNoCuda = {false, 0};
const Hardware kNoGpu = {true, 0};
const Hardware kOneGpu = {true, 1};
const Hardware kTwoGpus = {true, 2};

RankEnv LocalRank(int local_rank, int local_world_size) {
  RankEnv env;
  env.rank = env.local_rank = local_rank;
  env.world_size = env.local_world_size = local_world_size;
  return env;
}

std::string DeviceFor(const std::string& device, const RankEnv& env,
                      const Hardware& hardware) {
  const auto chosen = ChooseDevice(device, env, hardware);
  return chosen.ok() ? chosen->str() : std::string(chosen.status().message());
}

std::string BackendFor(const std::string& backend, const std::string& device,
                       const RankEnv& env, const Hardware& hardware) {
  const auto chosen = ChooseDevice(device, env, hardware);
  if (!chosen.ok()) return std::string(chosen.status().message());
  const auto name = ChooseBackend(backend, device, *chosen, env, hardware);
  return name.ok() ? *name : std::string(name.status().message());
}

TEST(PlacementTest, AutoTakesAGpuOnlyIfEveryLocalRankHasOne) {
  EXPECT_EQ(DeviceFor("auto", LocalRank(1, 2), kTwoGpus), "cuda:1");
  EXPECT_EQ(DeviceFor("auto", LocalRank(1, 3), kTwoGpus), "cpu");
  EXPECT_EQ(DeviceFor("auto", LocalRank(0, 1), kNoGpu), "cpu");
  EXPECT_EQ(DeviceFor("auto", LocalRank(0, 1), kNoCuda), "cpu");
  EXPECT_EQ(DeviceFor("cpu", LocalRank(0, 1), kTwoGpus), "cpu");
}

TEST(PlacementTest, SharingAGpuMustBeAskedForByName) {
  EXPECT_THAT(DeviceFor("cuda", LocalRank(2, 4), kTwoGpus),
              HasSubstr("4 local ranks but 2 GPUs"));
  EXPECT_EQ(DeviceFor("cuda:1", LocalRank(2, 4), kTwoGpus), "cuda:1");
}

// srun --gpus-per-task=1, or torchrun with a wrapper.
RankEnv WithItsOwnGpu(int local_rank, int local_world_size) {
  RankEnv env = LocalRank(local_rank, local_world_size);
  env.launcher = "srun";
  env.visible_gpus = "0";
  return env;
}

TEST(PlacementTest, ARankThatSeesOneGpuOfItsOwnTakesIt) {
  EXPECT_EQ(DeviceFor("cuda", WithItsOwnGpu(3, 4), kOneGpu), "cuda:0");
  EXPECT_EQ(DeviceFor("auto", WithItsOwnGpu(3, 4), kOneGpu), "cuda:0");
  EXPECT_EQ(BackendFor("auto", "auto", WithItsOwnGpu(3, 4), kOneGpu), "nccl");
  // Several GPUs are assigned by LOCAL_RANK, as before.
  EXPECT_EQ(DeviceFor("cuda", WithItsOwnGpu(1, 2), kTwoGpus), "cuda:1");
}

TEST(PlacementTest, RanksOfOneLauncherWithOneEnvironmentHaveNoGpuOfTheirOwn) {
  RankEnv env = WithItsOwnGpu(1, 2);
  env.launcher = "nproc";
  EXPECT_THAT(DeviceFor("cuda", env, kOneGpu),
              HasSubstr("2 local ranks but 1 GPU; start fewer ranks"));
  EXPECT_EQ(DeviceFor("auto", env, kOneGpu), "cpu");
  env = WithItsOwnGpu(1, 2);
  env.visible_gpus = "";  // all GPUs are visible: the machine has one
  EXPECT_THAT(DeviceFor("cuda", env, kOneGpu), HasSubstr("2 local ranks"));
}

TEST(PlacementTest, AGpuBuildSaysWhyItComputesOnTheCpu) {
  const auto why = [](const std::string& device, const RankEnv& env,
                      const Hardware& hardware) {
    return WhyOnCpu(device, *ChooseDevice(device, env, hardware), env,
                    hardware);
  };
  EXPECT_EQ(why("auto", LocalRank(0, 1), kNoGpu),
            "no GPU is used: no GPU is visible; computing on the CPU");
  EXPECT_EQ(why("auto", LocalRank(0, 3), kTwoGpus),
            "no GPU is used: 3 local ranks but 2 GPUs; the ranks compute on "
            "the CPU");
  EXPECT_EQ(why("auto", LocalRank(0, 2), kTwoGpus), "");
  EXPECT_EQ(why("cpu", LocalRank(0, 1), kNoGpu), "");
  EXPECT_EQ(why("auto", LocalRank(0, 1), kNoCuda), "");
}

TEST(PlacementTest, ALaunchIsRefusedBeforeItBegins) {
  EXPECT_THAT(std::string(CheckLaunch("cuda", 4, kTwoGpus).message()),
              HasSubstr("4 local ranks but 2 GPUs"));
  EXPECT_TRUE(CheckLaunch("cuda", 2, kTwoGpus).ok());
  EXPECT_TRUE(CheckLaunch("auto", 4, kTwoGpus).ok());
  EXPECT_TRUE(CheckLaunch("cuda:0", 4, kTwoGpus).ok());
}

TEST(PlacementTest, MissingDevicesAreExplained) {
  EXPECT_THAT(DeviceFor("cuda", LocalRank(0, 1), kNoCuda),
              HasSubstr("build it with --config=cuda"));
  EXPECT_THAT(DeviceFor("cuda", LocalRank(0, 1), kNoGpu),
              HasSubstr("no GPU is visible"));
  EXPECT_THAT(DeviceFor("cuda:2", LocalRank(0, 1), kTwoGpus),
              HasSubstr("cuda:0 to cuda:1"));
  EXPECT_THAT(DeviceFor("cuda:x", LocalRank(0, 1), kTwoGpus),
              HasSubstr("expected a number"));
  EXPECT_THAT(DeviceFor("tpu", LocalRank(0, 1), kTwoGpus),
              HasSubstr("device='tpu' is unknown"));
}

TEST(PlacementTest, AutoTakesNcclForRanksWithAGpuOfTheirOwn) {
  EXPECT_EQ(BackendFor("auto", "auto", LocalRank(0, 2), kTwoGpus), "nccl");
  EXPECT_EQ(BackendFor("auto", "auto", LocalRank(0, 3), kTwoGpus), "shm");
  EXPECT_EQ(BackendFor("auto", "cuda:0", LocalRank(1, 2), kTwoGpus), "gloo");
  EXPECT_EQ(BackendFor("auto", "cuda:0", LocalRank(0, 1), kTwoGpus), "nccl");
  EXPECT_EQ(BackendFor("gloo", "cuda", LocalRank(0, 1), kTwoGpus), "gloo");
}

TEST(PlacementTest, SharedMemoryServesTheCpusOfOneMachine) {
  EXPECT_EQ(BackendFor("auto", "cpu", LocalRank(0, 2), kTwoGpus), "shm");
  EXPECT_THAT(BackendFor("shm", "cuda:0", LocalRank(0, 2), kTwoGpus),
              HasSubstr("backend=shm carries CPU tensors only"));
  RankEnv on_two_machines = LocalRank(0, 2);
  on_two_machines.world_size = 4;
  EXPECT_EQ(BackendFor("auto", "cpu", on_two_machines, kNoGpu), "gloo");
  EXPECT_THAT(BackendFor("shm", "cpu", on_two_machines, kNoGpu),
              HasSubstr("2 of 4 are here; use backend=gloo"));
}

TEST(PlacementTest, MpiConnectsRanksThatAreStartedForIt) {
  RankEnv on_two_machines = LocalRank(0, 2);
  on_two_machines.world_size = 4;
  on_two_machines.launcher = "torchrun";
  EXPECT_THAT(BackendFor("mpi", "cpu", on_two_machines, kNoGpu),
              HasSubstr("started by torchrun, and PMIX_RANK is missing"));
  on_two_machines.launcher = "mpirun";
  on_two_machines.has_pmix = true;
  if (!WhyNoMpi().empty()) GTEST_SKIP() << WhyNoMpi();
  EXPECT_EQ(BackendFor("auto", "cpu", on_two_machines, kNoGpu), "mpi");
  EXPECT_THAT(BackendFor("mpi", "cuda:0", LocalRank(0, 2), kTwoGpus),
              HasSubstr("backend=mpi carries CPU tensors only"));
}

TEST(PlacementTest, NcclIsRefusedWhereItCannotRun) {
  EXPECT_THAT(BackendFor("nccl", "auto", LocalRank(0, 1), kNoCuda),
              HasSubstr("backend=nccl: this binary was built without CUDA"));
  EXPECT_THAT(BackendFor("nccl", "cpu", LocalRank(0, 1), kTwoGpus),
              HasSubstr("needs a GPU of its own for every rank"));
  EXPECT_THAT(BackendFor("nccl", "cuda:0", LocalRank(0, 2), kTwoGpus),
              HasSubstr("refuses two ranks on cuda:0"));
  EXPECT_THAT(BackendFor("mpi2", "cpu", LocalRank(0, 1), kTwoGpus),
              HasSubstr("backend='mpi2' is unknown"));
}

TEST(GpuPlacesTest, RanksWithGpusOfTheirOwnPass) {
  EXPECT_TRUE(CheckGpuPlaces({"node1|cuda:0|GPU-1", "node1|cuda:1|GPU-2",
                              "node2|cuda:0|GPU-3"})
                  .ok());
  // On CPUs, or on a GPU that was requested by name.
  EXPECT_TRUE(CheckGpuPlaces({"node1|cpu|", "node1|cpu|"}).ok());
}

TEST(GpuPlacesTest, TwoRanksOnOneGpuAreNamedWithIt) {
  const absl::Status status = CheckGpuPlaces(
      {"node1|cuda:0|GPU-1", "node1|cuda:1|GPU-2", "node1|cuda:0|GPU-1"});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("rank 0 (cuda:0 on node1) and rank 2 (cuda:0 on node1) "
                      "are on one GPU, GPU-1; start fewer ranks"),
            HasSubstr("srun --gpus-per-task=1"),
            HasSubstr("share it by name with device=cuda:0")));
}

TEST(GpuPlacesTest, ACpuHasNoGpu) {
  EXPECT_THAT(GpuPlace(c10::kCPU, /*shared=*/false),
              MatchesRegex("[^|]+\\|cpu\\|"));
}

TEST(HostsTest, AreMachinesInTheOrderOfTheirFirstRanks) {
  EXPECT_THAT(HostsOf({"0|b", "1|b", "0|a", "1|a"}), ElementsAre(0, 0, 1, 1));
  // mpirun --map-by node.
  EXPECT_THAT(HostsOf({"0|b", "0|a", "1|b", "1|a"}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(HostsOf({"0|a", "1|a", "0|b"}), ElementsAre(0, 0, 1));
}

TEST(HostsTest, AgentsOfOneMachineAreHosts) {
  EXPECT_THAT(HostsOf({"0|a", "1|a", "0|a", "1|a"}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(HostsOf({"0|a", "0|a", "1|a", "1|a"}), ElementsAre(0, 1, 0, 1));
  RankEnv env;
  env.local_rank = 3;
  EXPECT_THAT(HostPlace(env), MatchesRegex("3\\|.+"));
}

}  // namespace
}  // namespace rankwise
