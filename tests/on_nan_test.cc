// Training that diverges: all ranks of every trainer end, the error names the
// step and the rank, and the last finite checkpoint remains.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/test_process.h"
#include "tests/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Flags = std::vector<std::string>;

// The first update leaves weights of about 1e28, with which the loss of the
// second step is not finite any more.
Finished Diverge(const std::string& trainer, const std::string& dir,
                 const Flags& more, const std::string& lr = "1e30") {
  Flags flags = {"--model=mlp",
                 "--depth=2",
                 "--width=16",
                 "--train_size=256",
                 "--test_size=16",
                 "--batch_size=8",
                 "--epochs=1",
                 "--max_steps=6",
                 "--optimizer=sgd",
                 "--lr=" + lr,
                 "--log_every=1",
                 "--checkpoint_every=1",
                 "--threads=1",
                 "--keep_checkpoints=2",
                 "--record=" + dir + "/run.jsonl",
                 "--checkpoint_dir=" + dir};
  flags.insert(flags.end(), more.begin(), more.end());
  return RunTrainer(trainer, flags);
}

std::string FreshDir(const std::string& name) {
  const std::string dir = TemporaryPath(name);
  std::filesystem::create_directories(dir);
  return dir;
}

std::set<std::string> CheckpointsIn(const std::string& dir) {
  std::set<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(dir)) {
    const std::string name = item.path().filename();
    if (item.path().extension() == ".safetensors") names.insert(name);
  }
  return names;
}

TEST(OnNanTest, EveryTrainerStopsAndKeepsTheLastFiniteCheckpoint) {
  struct Case {
    const char* trainer;
    Flags flags;
    const char* rank;
  };
  for (const Case& each : std::vector<Case>{
           {"single", {}, "rank 0"},
           {"ddp", {"--nproc=2"}, "rank [01]"},
           {"fsdp", {"--nproc=2", "--zero=3"}, "rank [01]"},
           {"pipeline", {"--nproc=2", "--microbatches=2"}, "rank 1"},
           {"parameter_server", {"--nproc=3"}, "rank [12]"}}) {
    SCOPED_TRACE(each.trainer);
    const std::string dir = FreshDir(each.trainer);
    const Finished run = Diverge(each.trainer, dir, each.flags);
    EXPECT_EQ(run.code, 1) << run.err;
    EXPECT_THAT(
        run.err,
        AllOf(ContainsRegex(absl::StrCat(
                  "the loss of step 2 is (nan|-?inf) on ", each.rank)),
              HasSubstr("the last finite checkpoint is that of step 1 in " +
                        dir)));
    EXPECT_THAT(run.out, Not(HasSubstr("accuracy")));
    for (const std::string& name : CheckpointsIn(dir))
      EXPECT_THAT(name, HasSubstr("step_00000001")) << name;
    EXPECT_FALSE(CheckpointsIn(dir).empty());
  }
}

TEST(OnNanTest, ItIsFoundBeforeASaveAndNoReasonToRestart) {
  const std::string dir = FreshDir("restart");
  const Finished run = Diverge("ddp", dir,
                               {"--nproc=2", "--max_restarts=2",
                                "--log_every=100", "--checkpoint_every=3"});
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_THAT(run.err, AllOf(ContainsRegex("the loss of step 2 is (nan|-?inf)"),
                             HasSubstr("there is no finite checkpoint"),
                             Not(HasSubstr("restart 1"))));
  EXPECT_TRUE(CheckpointsIn(dir).empty());
}

// The learning rate exceeds fp32: parameters are not finite before any loss is.
TEST(OnNanTest, ParametersAreTestedBeforeEverySave) {
  const std::string dir = FreshDir("parameters");
  const Finished run = Diverge("ddp", dir, {"--nproc=2"}, "1e39");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_THAT(run.err,
              AllOf(ContainsRegex("the check of the parameters after step 1 "
                                  "failed on rank 0: .* not finite"),
                    HasSubstr("there is no finite checkpoint")));
  EXPECT_TRUE(CheckpointsIn(dir).empty());
}

TEST(OnNanTest, ContinueTrainsOnAndSavesNothingThatIsNotFinite) {
  const std::string dir = FreshDir("continue");
  const Finished run = Diverge("single", dir, {"--on_nan=continue"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0).size(), 6u);
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("warning: the loss of step 2 is "),
                    HasSubstr("warning: no checkpoint is saved: the check of "
                              "the parameters after step 6 failed")));
  EXPECT_THAT(CheckpointsIn(dir), ElementsAre("step_00000001.safetensors"));
}

}  // namespace
}  // namespace rankwise
