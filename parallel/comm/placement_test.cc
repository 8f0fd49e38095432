#include "parallel/comm/placement.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr Hardware kNoCuda = {false, 0};
constexpr Hardware kNoGpu = {true, 0};
constexpr Hardware kTwoGpus = {true, 2};

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
  EXPECT_EQ(BackendFor("auto", "auto", LocalRank(0, 3), kTwoGpus), "gloo");
  EXPECT_EQ(BackendFor("auto", "cuda:0", LocalRank(1, 2), kTwoGpus), "gloo");
  EXPECT_EQ(BackendFor("auto", "cuda:0", LocalRank(0, 1), kTwoGpus), "nccl");
  EXPECT_EQ(BackendFor("gloo", "cuda", LocalRank(0, 1), kTwoGpus), "gloo");
}

TEST(PlacementTest, NcclIsRefusedWhereItCannotRun) {
  EXPECT_THAT(BackendFor("nccl", "auto", LocalRank(0, 1), kNoCuda),
              HasSubstr("backend=nccl: this binary was built without CUDA"));
  EXPECT_THAT(BackendFor("nccl", "cpu", LocalRank(0, 1), kTwoGpus),
              HasSubstr("needs a GPU of its own for every rank"));
  EXPECT_THAT(BackendFor("nccl", "cuda:0", LocalRank(0, 2), kTwoGpus),
              HasSubstr("refuses two ranks on cuda:0"));
  EXPECT_THAT(BackendFor("mpi", "cpu", LocalRank(0, 1), kTwoGpus),
              HasSubstr("backend='mpi' is unknown"));
}

}  // namespace
}  // namespace rankwise
