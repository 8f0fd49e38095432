#include "parallel/comm/gpu_places.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GpuPlacesTest, RanksWithGpusOfTheirOwnPass) {
  EXPECT_TRUE(CheckGpuPlaces({{0, "node1", "cuda:0", "GPU-1"},
                              {1, "node1", "cuda:1", "GPU-2"},
                              {2, "node2", "cuda:0", "GPU-3"}})
                  .ok());
  // On CPUs, or on a GPU that was asked for by name.
  EXPECT_TRUE(
      CheckGpuPlaces({{0, "node1", "cpu", ""}, {1, "node1", "cpu", ""}}).ok());
}

TEST(GpuPlacesTest, TwoRanksOnOneGpuAreNamedWithIt) {
  const absl::Status status = CheckGpuPlaces({{0, "node1", "cuda:0", "GPU-1"},
                                              {1, "node1", "cuda:1", "GPU-2"},
                                              {2, "node1", "cuda:0", "GPU-1"}});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("rank 0 (cuda:0 on node1) and rank 2 (cuda:0 on node1) "
                      "are on one GPU, GPU-1; start fewer ranks"),
            HasSubstr("srun --gpus-per-task=1"),
            HasSubstr("share it by name with device=cuda:0")));
}

TEST(GpuPlacesTest, APlaceSurvivesTheStore) {
  const auto place =
      ParseGpuPlace(3, FormatGpuPlace({3, "node1", "cuda:1", "GPU-7"}));
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->host, "node1");
  EXPECT_EQ(place->device, "cuda:1");
  EXPECT_EQ(place->uuid, "GPU-7");
  EXPECT_EQ(ParseGpuPlace(0, "nonsense").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(GpuPlacesTest, EveryRankHearsOfIt) {
  c10d::HashStore store;
  std::vector<absl::Status> verdicts(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      verdicts[rank] = CheckGpusOfAllRanks(
          store, {rank, "node1", "cuda:0", rank == 0 ? "GPU-0" : "GPU-1"}, 3);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& verdict : verdicts) {
    EXPECT_THAT(std::string(verdict.message()),
                HasSubstr("rank 1 (cuda:0 on node1) and rank 2"));
  }
}

TEST(GpuPlacesTest, ACpuHasNoGpu) {
  const GpuPlace place = PlaceOf(1, c10::kCPU);
  EXPECT_EQ(place.device, "cpu");
  EXPECT_EQ(place.uuid, "");
  EXPECT_NE(place.host, "");
}

}  // namespace
}  // namespace rankwise
