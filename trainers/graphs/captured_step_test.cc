#include "trainers/graphs/captured_step.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainers/loop/config.h"
#include "trainers/loop/objective.h"
#include "trainers/models/model.h"
#include "trainers/observe/step_log.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 8, kOddBatch = 3, kBatchesPerEpoch = 6;

struct Options {
  std::string optimizer = "adam";
  double momentum = 0;
  double clip_grad_norm = 0;
  Precision precision = Precision::kFp32;
  int64_t accumulate = 1;
  int64_t epochs = 3;
};

// A model with all state that a step changes.
class Training {
 public:
  explicit Training(Options options) : options_(std::move(options)) {
    at::manual_seed(11);
    model_ = std::make_shared<Model>(*MakeModelSpec({.name = "linear"}));
    objective_.emplace(model_, LossKind::kMeanSquaredError, options_.precision,
                       at::kCPU);
    optimizer_ = *MakeOptimizer(TrainableParameters(*model_),
                                {.name = options_.optimizer,
                                 .momentum = options_.momentum,
                                 .clip_grad_norm = options_.clip_grad_norm});
    if (options_.precision == Precision::kFp16) optimizer_->UseGradScaler({});
  }

  absl::StatusOr<StepOutcome> Step(const StepInput& input) {
    torch::Tensor loss;
    for (const Batch& batch : input.micro_batches) {
      input.clock.Begin(Phase::kForward);
      torch::Tensor share = objective_->LossShare(batch, input.micro_batches);
      input.clock.Begin(Phase::kBackward);
      optimizer_->ScaledLoss(share).backward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    input.clock.Begin(Phase::kOptimizer);
    optimizer_->Step(input.learning_rate);
    optimizer_->ZeroGrad();
    return StepOutcome{.loss = loss};
  }

  std::vector<torch::Tensor> State() const {
    std::vector<torch::Tensor> state;
    for (const auto& parameter : model_->parameters())
      state.push_back(parameter.detach());
    for (const auto& [name, tensor] : optimizer_->State())
      state.push_back(tensor);
    return state;
  }

  // Returns the losses of all steps, run by `step`; observes step `watched`.
  std::vector<float> Train(const StepFunction& step, int64_t watched = 0) {
    std::vector<float> losses;
    int64_t number = 0;
    at::manual_seed(12);
    for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
      std::vector<Batch> pending;
      for (int64_t i = 1; i <= kBatchesPerEpoch; ++i) {
        pending.push_back(MakeBatch(i == kBatchesPerEpoch));
        if (static_cast<int64_t>(pending.size()) < options_.accumulate &&
            i < kBatchesPerEpoch)
          continue;
        ++number;
        losses.push_back(Do(step, number, pending, number == watched));
        pending.clear();
      }
    }
    return losses;
  }

  std::vector<torch::Tensor> Parameters() const { return model_->parameters(); }
  Optimizer& optimizer() const { return *optimizer_; }
  const StepRecord& last_times() const { return last_times_; }

 private:
  // With fp16 every tenth batch is large enough for its gradients to overflow.
  Batch MakeBatch(bool odd) {
    const int64_t size = odd ? kOddBatch : kBatch;
    const bool huge =
        options_.precision == Precision::kFp16 && ++made_ % 10 == 0;
    return {at::randn({size, 10}) * (huge ? 1e4 : 1), at::randn({size, 1})};
  }

  float Do(const StepFunction& step, int64_t number,
           const std::vector<Batch>& batches, bool watched) {
    const std::vector<uint64_t> seeds(batches.size());
    StepClock clock(at::kCPU);
    clock.Begin(Phase::kDataWait);
    absl::StatusOr<StepOutcome> outcome =
        step({.step = number,
              .ends_epoch = false,
              .micro_batches = batches,
              .dropout_seeds = seeds,
              .learning_rate = 0.1 / static_cast<double>(number),
              .clock = clock,
              .traced = false,
              .watched = watched});
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    clock.Begin(Phase::kEnd);
    last_times_ = {};
    clock.AddTo(last_times_);
    // The loader reuses its memory.
    for (const Batch& batch : batches) batch.data.fill_(-1);
    return outcome->loss.item<float>();
  }

  const Options options_;
  std::shared_ptr<Model> model_;
  std::optional<Objective> objective_;
  std::unique_ptr<Optimizer> optimizer_;
  StepRecord last_times_;
  int64_t made_ = 0;
};

// A graph without a device: a capture leaves no trace in the state, and a
// replay runs the captured work on the same tensors.
class FakeGraph : public DeviceGraph {
 public:
  FakeGraph(Training& training, std::string failure, int* replays)
      : training_(training), failure_(std::move(failure)), replays_(replays) {}

  absl::Status Capture(const std::function<absl::Status()>& work) override {
    std::vector<torch::Tensor> before;
    for (const torch::Tensor& tensor : training_.State())
      before.push_back(tensor.clone());
    const absl::Status status = work();
    const at::NoGradGuard no_grad;
    const std::vector<torch::Tensor> state = training_.State();
    for (size_t i = 0; i < state.size(); ++i) state[i].copy_(before[i]);
    work_ = work;
    if (failure_.empty()) return status;
    for (torch::Tensor& parameter : training_.Parameters())
      parameter.mutable_grad() = at::ones_like(parameter);
    return absl::FailedPreconditionError(failure_);
  }

  void Replay() override {
    ++*replays_;
    ASSERT_TRUE(work_().ok());
  }

 private:
  Training& training_;
  const std::string failure_;
  int* const replays_;
  std::function<absl::Status()> work_;
};

// A training whose steps are captured, and its results.
struct Captured {
  explicit Captured(const Options& options, const std::string& failure = "",
                    bool others = true, const std::string& refusal = "",
                    int64_t watched = 0)
      : training(options) {
    CapturableStep capturable;
    capturable.step = [this](const StepInput& input) {
      return training.Step(input);
    };
    capturable.refusal = refusal;
    capturable.make_graph = [this, failure] {
      ++graphs;
      return std::make_unique<FakeGraph>(training, failure, &replays);
    };
    capturable.on_all_ranks = [others](bool mine) { return mine && others; };
    capturable.recover = [this] {
      ++recovered;
      return absl::OkStatus();
    };
    capturable.say = [this](const std::string& line) { said.push_back(line); };
    capturable.say_of_rank = [this](const std::string& line) {
      said_of_rank.push_back(line);
    };
    CapturedStep step(std::move(capturable), training.optimizer());
    losses = training.Train(
        [&](const StepInput& input) { return step.Run(input); }, watched);
  }

  Training training;
  int graphs = 0, replays = 0, recovered = 0;
  std::vector<std::string> said, said_of_rank;
  std::vector<float> losses;
};

void ExpectAsWithoutGraph(const Options& options, const Captured& captured) {
  Training plain(options);
  const std::vector<float> losses =
      plain.Train([&](const StepInput& input) { return plain.Step(input); });
  EXPECT_EQ(captured.losses, losses);
  const std::vector<torch::Tensor> expected = plain.State();
  const std::vector<torch::Tensor> state = captured.training.State();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(state[i], expected[i])) << i;
}

class CapturedStepOfTest : public ::testing::TestWithParam<Options> {};

TEST_P(CapturedStepOfTest, TrainsBitForBitAsWithoutGraph) {
  const Options options = GetParam();
  const Captured captured(options);
  ExpectAsWithoutGraph(options, captured);
  // The last step of an epoch is smaller.
  const int64_t full = kBatchesPerEpoch / options.accumulate - 1;
  EXPECT_EQ(captured.replays, full * options.epochs - 3);
  EXPECT_EQ(captured.graphs, 1);
  EXPECT_EQ(captured.recovered, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, CapturedStepOfTest,
    ::testing::Values(
        Options{},
        Options{.optimizer = "sgd", .momentum = 0.9, .clip_grad_norm = 0.5},
        Options{.clip_grad_norm = 0.5, .accumulate = 2, .epochs = 5},
        Options{.clip_grad_norm = 0.5, .precision = Precision::kFp16},
        Options{.optimizer = "sgd",
                .precision = Precision::kFp16,
                .accumulate = 2,
                .epochs = 5}));

TEST(CapturedStepTest, OverflowsAreSkippedInReplaysToo) {
  const Captured captured({.precision = Precision::kFp16});
  Training plain({.precision = Precision::kFp16});
  plain.Train([&](const StepInput& input) { return plain.Step(input); });
  const int64_t skipped = plain.optimizer().grad_scaler()->skipped_steps();
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(captured.training.optimizer().grad_scaler()->skipped_steps(),
            skipped);
}

TEST(CapturedStepTest, ARecordingThatFailsLeavesTheTrainingAsItWas) {
  const Captured captured({},
                          "operation not permitted when stream is capturing");
  ExpectAsWithoutGraph({}, captured);
  EXPECT_EQ(captured.graphs, 1) << "tried once";
  EXPECT_EQ(captured.replays, 0);
  EXPECT_EQ(captured.recovered, 1);
  EXPECT_THAT(captured.said_of_rank,
              ElementsAre(HasSubstr("not permitted when stream is capturing")));
  EXPECT_THAT(captured.said,
              ElementsAre(HasSubstr("all steps run without it")));
}

TEST(CapturedStepTest, NoRankUsesAGraphThatAnotherCouldNotRecord) {
  const Captured captured({}, "", /*others=*/false);
  ExpectAsWithoutGraph({}, captured);
  EXPECT_EQ(captured.replays, 0);
  EXPECT_EQ(captured.recovered, 1);
  EXPECT_THAT(captured.said_of_rank, ElementsAre());
}

TEST(CapturedStepTest, ARefusalIsSaidOnceAndNothingRecorded) {
  const Captured captured({}, "", true, "dropout");
  ExpectAsWithoutGraph({}, captured);
  EXPECT_EQ(captured.graphs, 0);
  EXPECT_THAT(captured.said,
              ElementsAre("--cuda_graph: all steps run without it: dropout"));
}

TEST(CapturedStepTest, WatchedStepsRunWithoutGraph) {
  const Captured captured({}, "", true, "", /*watched=*/9);
  ExpectAsWithoutGraph({}, captured);
  EXPECT_EQ(captured.replays, 5 * 3 - 3 - 1);
}

TEST(CapturedStepTest, TimeOfAReplayIsOnePhase) {
  // The last step of the run is a full one.
  Options options;
  options.accumulate = kBatchesPerEpoch;
  options.epochs = 5;
  const Captured captured(options);
  EXPECT_EQ(captured.replays, 2);
  const StepRecord times = captured.training.last_times();
  EXPECT_GT(times.captured_seconds, 0);
  EXPECT_EQ(times.forward_seconds, 0);
  EXPECT_EQ(times.optimizer_seconds, 0);
  EXPECT_GE(times.step_seconds, times.captured_seconds);
}

}  // namespace
}  // namespace rankwise
