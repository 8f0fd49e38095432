#include "parallel/comm/decide_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "parallel/comm/diagnosis/peers.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

RankEnv Rank(int rank, int world_size) {
  RankEnv env;
  env.rank = rank;
  env.world_size = world_size;
  return env;
}

TEST(JudgeTogetherTest, EveryRankHearsTheVerdict) {
  c10d::HashStore store;
  std::vector<absl::Status> verdicts(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      verdicts[rank] = JudgeTogether(
          store, "colour", Rank(rank, 3), rank == 2 ? "red" : "blue",
          [](const std::vector<std::string>& all) {
            return all[1] == all[2]
                       ? absl::OkStatus()
                       : absl::InvalidArgumentError(all[1] + ", " + all[2]);
          });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& verdict : verdicts) {
    EXPECT_EQ(verdict.message(), "blue, red");
  }
}

TEST(DecideTogetherTest, ARankThatDoesNotAnswerIsNamed) {
  c10d::HashStore store;
  store.setTimeout(std::chrono::milliseconds(100));
  const auto first = [](const std::vector<std::string>& all) { return all[0]; };
  // Rank 1 has answered; rank 0, which decides, waits for rank 2.
  const auto of_1 = DecideTogether(store, "colour", Rank(1, 3), "red", first);
  const auto of_0 = DecideTogether(store, "colour", Rank(0, 3), "red", first);
  EXPECT_TRUE(absl::IsUnavailable(of_0.status())) << of_0.status();
  EXPECT_THAT(std::string(of_0.status().message()),
              HasSubstr("rank 2 arrived but then stopped answering"));
  EXPECT_THAT(std::string(of_1.status().message()),
              HasSubstr("rank 0 arrived but then stopped answering"));
  const std::optional<Blame> blame = RootBlameOf(store, 1);
  ASSERT_TRUE(blame.has_value());
  EXPECT_EQ(blame->rank, 2);
}

}  // namespace
}  // namespace rankwise
