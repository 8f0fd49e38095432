// Tests torchrun's elastic jobs on hosts that vanish and return: they continue
// from the last checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "records/record.h"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Limits of torchrun's protocol; the test itself retries nothing. An agent
// sends a heartbeat every second, is considered dead after 3 missing ones, and
// waits 2 s for more agents than the job needs. Each host that leaves or joins
// is one restart, and WorldSizes() counts them.
constexpr char kRendezvous[] =
    " --rdzv-id=job --rdzv-backend=c10d --rdzv-endpoint=host1:29400 --rdzv-conf"
    "=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"
    " --monitor-interval=0.1 --nproc-per-node=1 --max-restarts=3";

constexpr char kStep[] = "  step ";

// Slow enough steps to be interrupted.
Flags FlagsFor(const std::string& record) {
  return {"--model=gpt",
          "--depth=2",
          "--width=64",
          "--sequence_length=128",
          "--train_size=4800",
          "--epochs=1000",
          "--global_batch_size=48",
          "--eval=false",
          "--threads=1",
          "--backend=gloo",
          "--log_every=1",
          absl::StrCat("--record=", record)};
}

// Returns step -> mean loss over the ranks that trained it last.
Losses MeansOf(const std::string& record) {
  std::map<int64_t, int64_t> world_size;  // of each rank's last run
  std::map<int64_t, Losses> losses;       // by step
  for (const Record& one : RecordsIn(record)) {
    if (const auto* run = std::get_if<RunRecord>(&one))
      world_size[run->rank] = run->world_size;
    const auto* step = std::get_if<StepRecord>(&one);
    if (step == nullptr) continue;
    std::map<int64_t, double>& by_rank = losses[step->step];
    by_rank[step->rank] = step->loss;
    by_rank.erase(by_rank.lower_bound(world_size[step->rank]), by_rank.end());
  }
  Losses means;
  for (const auto& [step, by_rank] : losses) {
    for (const auto& [rank, loss] : by_rank)
      means[step] += loss / static_cast<double>(by_rank.size());
  }
  return means;
}

Losses Undisturbed(int64_t steps) {
  const std::string record = TemporaryPath("undisturbed.jsonl");
  OutputOf("ddp", Joined(FlagsFor(record),
                         {"--nproc=2", absl::StrCat("--max_steps=", steps)}));
  return MeansOf(record);
}

class ElasticTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped()) return;
    std::string why_not;
    torchrun_ = Torchrun(cluster(), &why_not);
    if (torchrun_.empty()) GTEST_SKIP() << why_not;
    std::filesystem::create_directory(dir_);
  }

  // Starts the agent of `host`, which starts its ranks.
  std::unique_ptr<TestProcess> StartAgent(int host, const std::string& nodes,
                                          const std::string& more_flags) {
    return cluster().Start(
        absl::StrCat("host", host),
        absl::StrCat("exec env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ",
                     torchrun_, kRendezvous, " --nnodes=", nodes,
                     " trainers/ddp ", absl::StrJoin(FlagsFor(record_), " "),
                     " --collective_timeout=3s --checkpoint_every=5 "
                     "--checkpoint_dir=",
                     dir_, " --resume ", more_flags));
  }

  // Returns the world sizes of the runs in the record, in order.
  std::vector<int64_t> WorldSizes() const {
    std::vector<int64_t> sizes;
    for (const RunRecord& run : RecordsOf<RunRecord>(record_)) {
      if (run.rank == 0) sizes.push_back(run.world_size);
    }
    return sizes;
  }

  const std::string dir_ = TemporaryPath("elastic");
  const std::string record_ = dir_ + "/run.jsonl";

 private:
  std::string torchrun_;
};

TEST_F(ElasticTest, AJobWaitsForAHostThatVanishedAndGoesOnBitEqual) {
  constexpr int64_t kSteps = 60;
  const std::string end = absl::StrCat("--max_steps=", kSteps);
  auto first = StartAgent(1, "2", end);
  auto second = StartAgent(2, "2", end);
  ASSERT_TRUE(first->AwaitOutput(kStep, 12)) << first->Stderr();
  cluster().Destroy(2);
  EXPECT_EQ(second->Wait(), 128 + SIGKILL);
  // A host that joins before its agent has seen the failed rank also ends the
  // rank, and torchrun counts no restart.
  ASSERT_TRUE(first->AwaitError("failed (exitcode:", 1)) << first->Stderr();
  cluster().SetLink(2, true);
  second = StartAgent(2, "2", end);
  EXPECT_EQ(first->Wait(), 0) << first->Stderr();
  EXPECT_EQ(second->Wait(), 0) << second->Stderr();
  EXPECT_THAT(WorldSizes(), ElementsAre(2, 2));
  const auto restarts = RecordsOf<RestartRecord>(record_);
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_GE(restarts[0].step, 10);
  EXPECT_LT(restarts[0].step, kSteps);
  EXPECT_GT(restarts[0].training_unix_seconds, restarts[0].kept_unix_seconds);
  EXPECT_THAT(first->Stdout(), HasSubstr(" s lost"));
  EXPECT_EQ(MeansOf(record_), Undisturbed(kSteps));
  EXPECT_THAT(cluster().ProgramsOn(1), IsEmpty());
  EXPECT_THAT(cluster().ProgramsOn(2), IsEmpty());
}

TEST_F(ElasticTest, AJobGoesOnWithTheHostsThatAreLeftAndTakesOneThatJoins) {
  auto first = StartAgent(1, "1:2", "");
  auto second = StartAgent(2, "1:2", "");
  ASSERT_TRUE(first->AwaitOutput(kStep, 12)) << first->Stderr();
  cluster().Destroy(2);
  ASSERT_TRUE(first->AwaitOutput("resumed after step", 1)) << first->Stderr();
  cluster().SetLink(2, true);
  second = StartAgent(2, "1:2", "");
  ASSERT_TRUE(first->AwaitOutput("resumed after step", 2)) << first->Stderr();
  ASSERT_TRUE(second->AwaitOutput("rank 1 of 2", 1)) << second->Stderr();
  const size_t before = MeansOf(record_).size();
  const Deadline deadline(absl::Seconds(50));
  while (MeansOf(record_).size() < before + 8) {
    ASSERT_FALSE(deadline.passed()) << first->Stderr();
    absl::SleepFor(absl::Milliseconds(100));
  }
  for (const auto* agent : {&first, &second}) (*agent)->Signal(SIGTERM);
  for (const auto* agent : {&first, &second}) EXPECT_GT((*agent)->Wait(), 0);
  EXPECT_THAT(WorldSizes(), ElementsAre(2, 1, 2));
  const Losses losses = MeansOf(record_);
  // torchrun's second signal may end a rank before it records its last step,
  // whose mean would be the other rank's.
  const int64_t recorded_by_both = losses.rbegin()->first - 1;
  for (const auto& [step, loss] : Undisturbed(recorded_by_both))
    EXPECT_NEAR(losses.at(step), loss, 1e-3) << "step " << step;
}

}  // namespace
}  // namespace rankwise
