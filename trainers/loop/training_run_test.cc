// Runs with --trace that are preempted, or resumed shortly before their end.
#include "trainers/loop/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/launch/signals.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TracedRunTest : public testing::Test {
 protected:
  TracedRunTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()),
        trace_file_((dir_ / "steps.json").string()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    config_.model.name = config_.data.dataset = "linear";
    config_.data.batch_size = 16;
    config_.data.train_size = 512;
    config_.optimizer.name = "sgd";
    config_.optimizer.learning_rate = 0.01;
    config_.checkpoint.dir = dir_.string();
    config_.epochs = 1;
    config_.evaluate = false;
    config_.output.show_progress = false;
  }

  // Trains like trainers/single.cc, with SIGTERM in step `preempted_step`.
  absl::Status Train(int64_t preempted_step = 0) {
    Worker worker;
    worker.trainer = "single";
    ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                     TrainingRun::Create(config_, worker));
    RETURN_IF_ERROR(run->Start(TrainableParameters(run->model())));
    return run->Train(
        [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
          if (input.step == preempted_step) raise(SIGTERM);
          input.clock.Begin(Phase::kForward);
          const torch::Tensor loss = run->objective().LossShare(
              input.micro_batches[0], input.micro_batches);
          input.clock.Begin(Phase::kBackward);
          loss.backward();
          input.clock.Begin(Phase::kOptimizer);
          run->optimizer().Step(input.learning_rate);
          run->optimizer().ZeroGrad();
          return StepOutcome{.loss = loss.detach()};
        });
  }

  const fs::path dir_;
  const std::string trace_file_;
  TrainConfig config_;
};

TEST_F(TracedRunTest, ResumedWithTooFewStepsLeftItTrainsWithoutATrace) {
  config_.max_steps = 4;
  ASSERT_TRUE(Train().ok());
  config_.max_steps = 5;
  config_.checkpoint.resume = true;
  config_.output.trace.file = trace_file_;
  for (const char* left :
       {"the run has 1 step left", "the run has 0 steps left"}) {
    testing::internal::CaptureStdout();
    const absl::Status trained = Train();
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr(left));
    EXPECT_TRUE(trained.ok()) << trained;
  }
  EXPECT_FALSE(fs::exists(trace_file_));
}

// Must be the last test: later runs of this process would be preempted, too.
TEST_F(TracedRunTest, PreemptedItWritesTheStepsThatItHasFollowed) {
  config_.output.trace = {.file = trace_file_, .steps = 1000};
  CatchPreemption();
  testing::internal::CaptureStdout();
  const absl::Status ended = Train(/*preempted_step=*/4);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("trace of steps 3 to "));
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_TRUE(fs::exists(trace_file_));
}

}  // namespace
}  // namespace rankwise
