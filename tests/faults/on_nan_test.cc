// Tests diverging training: all ranks of every trainer end, the error names the
// step and the rank, the last finite checkpoint remains, and analysis excludes
// the run for the same reason.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/runs/run_trace.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The first update produces weights of about 1e28, so that the loss of the
// second step is not finite.
Finished Diverge(const std::string& trainer, const std::string& dir,
                 const Flags& more, const std::string& lr = "1e30") {
  return RunTrainer(
      trainer,
      Joined({"--model=mlp", "--depth=2", "--width=16", "--train_size=256",
              "--test_size=16", "--batch_size=8", "--epochs=1", "--max_steps=6",
              "--optimizer=sgd", "--lr=" + lr, "--log_every=1",
              "--checkpoint_every=1", "--threads=1", "--keep_checkpoints=2",
              "--record=" + dir + "/run.jsonl", "--checkpoint_dir=" + dir},
             more));
}

std::set<std::string> CheckpointsIn(const std::string& dir) {
  std::set<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(dir)) {
    const std::string name = item.path().filename();
    if (item.path().extension() == ".safetensors") names.insert(name);
  }
  return names;
}

// Returns why analysis excludes the run recorded in `dir`.
std::string WhyLeftOut(const std::string& dir) {
  const absl::StatusOr<std::vector<RunTrace>> runs =
      LoadRuns(dir + "/run.jsonl");
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? WhyDiverged(runs->back()) : "";
}

struct Stop {
  const char* name;
  std::string trainer;
  Flags flags;
  std::string found = "the loss of step 2 is (nan|-?inf) on rank 0";
  std::string lr = "1e30";
  int finite_step = 1;  // step of the remaining checkpoint
};

const std::vector<Stop> kStops = {
    {"single", "single", {}},
    {"data_parallel", "data_parallel", {"--replicas=2"}},
    {"model_parallel", "model_parallel", {"--split=layers"}},
    {"ddp",
     "ddp",
     {"--nproc=2"},
     "the loss of step 2 is (nan|-?inf) on rank [01]"},
    {"fsdp",
     "fsdp",
     {"--nproc=2", "--zero=3"},
     "the loss of step 2 is (nan|-?inf) on rank [01]"},
    {"tensor_parallel",
     "tensor_parallel",
     {"--nproc=2", "--model=gpt", "--model_size=nano", "--depth=1",
      "--width=64"}},
    {"pipeline",
     "pipeline",
     {"--nproc=2", "--microbatches=2"},
     "the loss of step 2 is (nan|-?inf) on rank 1"},
    {"hybrid",
     "hybrid",
     {"--nproc=4", "--pp=2", "--dp=2", "--microbatches=2"},
     "the loss of step 2 is (nan|-?inf) on rank [23]"},
    {"parameter_server",
     "parameter_server",
     {"--nproc=3", "--max_restarts=1"},
     "the loss of step 2 is (nan|-?inf) on rank [12]"},
    // Skipped steps keep the parameters of step 1.
    {"fp16",
     "single",
     {"--precision=fp16", "--max_steps=25", "--keep_checkpoints=1"},
     "the loss of step 21 is (nan|-?inf) on rank 0",
     "1e30",
     20},
    {"gradient_norm",
     "ddp",
     {"--nproc=2", "--clip_grad_norm=1e38"},
     "the gradients' norm of step 2 is inf on rank 0",
     "1e12"}};

TEST(OnNanTest, EveryTrainerStopsAndKeepsTheLastFiniteCheckpoint) {
  for (const Stop& each : kStops) {
    SCOPED_TRACE(each.name);
    const std::string dir = FreshDir(each.name);
    const Finished run = Diverge(each.trainer, dir, each.flags, each.lr);
    EXPECT_EQ(run.code, 1) << run.err;
    EXPECT_THAT(
        run.err,
        AllOf(ContainsRegex(each.found),
              HasSubstr(absl::StrCat("the last finite checkpoint is that of "
                                     "step ",
                                     each.finite_step, " in ", dir)),
              Not(HasSubstr("Connection")), Not(HasSubstr("restart 1"))));
    EXPECT_THAT(run.out, Not(HasSubstr("accuracy")));
    EXPECT_THAT(
        CheckpointsIn(dir),
        AllOf(Not(IsEmpty()),
              Each(HasSubstr(absl::StrFormat("step_%08d", each.finite_step)))));
    EXPECT_THAT(WhyLeftOut(dir),
                ContainsRegex("the training diverged: " + each.found));
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

// The learning rate exceeds fp32: parameters become non-finite before the loss.
TEST(OnNanTest, ParametersAreTestedBeforeEverySave) {
  const std::string dir = FreshDir("parameters");
  const Finished run = Diverge("ddp", dir, {"--nproc=2"}, "1e39");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_THAT(run.err,
              AllOf(ContainsRegex("the check of the parameters after step 1 "
                                  "failed on rank 0: .* not finite"),
                    HasSubstr("there is no finite checkpoint")));
  EXPECT_TRUE(CheckpointsIn(dir).empty());
  EXPECT_THAT(WhyLeftOut(dir),
              HasSubstr("the training diverged: the check of the parameters "
                        "after step 1 failed on rank 0"));
}

TEST(OnNanTest, ContinueTrainsOnAndSavesNothingThatIsNotFinite) {
  struct Case {
    const char* trainer;
    int ranks;
    Flags flags;
  };
  for (const Case& each :
       std::vector<Case>{{"single", 1, {}}, {"ddp", 2, {"--nproc=2"}}}) {
    SCOPED_TRACE(each.trainer);
    const std::string dir = FreshDir(absl::StrCat("continue_", each.trainer));
    const Finished run =
        Diverge(each.trainer, dir, Joined(each.flags, {"--on_nan=continue"}));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out,
                HasSubstr("warning: no checkpoint is saved: the check of the "
                          "parameters after step 6 failed"));
    for (int rank = 0; rank < each.ranks; ++rank) {
      EXPECT_EQ(LossesOf(dir + "/run.jsonl", rank).size(), 6u);
      EXPECT_THAT(run.out,
                  ContainsRegex(absl::StrCat("warning: the loss of step 2 is "
                                             "(nan|-?inf) on rank ",
                                             rank)));
    }
    EXPECT_THAT(CheckpointsIn(dir), ElementsAre("step_00000001.safetensors"));
    EXPECT_THAT(WhyLeftOut(dir), HasSubstr("the loss of step 2 is "));
  }
}

}  // namespace
}  // namespace rankwise
