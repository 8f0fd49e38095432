#include "trainers/captured_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainers/objective.h"
#include "trainers/step_clock.h"

namespace rankwise {
namespace {

std::vector<std::vector<int64_t>> ShapesOf(absl::Span<const Batch> batches) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Batch& batch : batches) {
    shapes.push_back(batch.data.sizes().vec());
    shapes.push_back(batch.target.sizes().vec());
  }
  return shapes;
}

// The optimizer reads its rate from a tensor for a scope.
class ScopedRate {
 public:
  ScopedRate(Optimizer& optimizer, const torch::Tensor& rate)
      : optimizer_(optimizer) {
    optimizer_.ReadRateFrom(rate);
  }
  ~ScopedRate() { optimizer_.ReadRateFrom({}); }
  ScopedRate(const ScopedRate&) = delete;
  ScopedRate& operator=(const ScopedRate&) = delete;

 private:
  Optimizer& optimizer_;
};

}  // namespace

CapturedStep::CapturedStep(StepFunction step, Optimizer& optimizer,
                           CapturedStepConfig config, CapturedStepHooks hooks)
    : step_(std::move(step)),
      optimizer_(optimizer),
      config_(std::move(config)),
      hooks_(std::move(hooks)) {}

CapturedStep::~CapturedStep() = default;

absl::StatusOr<StepOutcome> CapturedStep::Run(const StepInput& input) {
  if (!config_.refusal.empty() && !gave_up_) {
    gave_up_ = true;
    SayOnce(absl::StrCat("all steps run without it: ", config_.refusal));
  }
  if (gave_up_) return step_(input);
  if (input.watched) {
    SayOnce(
        "steps that are traced, or whose communication is recorded, run "
        "without it: nobody sees into a graph");
    return step_(input);
  }
  absl::StatusOr<bool> ready = Ready(input);
  if (!ready.ok()) return ready.status();
  return *ready ? Replay(input) : step_(input);
}

absl::StatusOr<bool> CapturedStep::Ready(const StepInput& input) {
  std::vector<std::vector<int64_t>> shapes = ShapesOf(input.micro_batches);
  if (graph_ != nullptr) {
    if (shapes == shapes_) return true;
    SayOnce(
        "steps with fewer or smaller batches than usual, as at an epoch's end, "
        "run without it");
    return false;
  }
  const int64_t examples = CountExamples(input.micro_batches);
  if (examples > examples_) {
    examples_ = examples;
    shapes_ = shapes;
    steps_of_shapes_ = 0;
  }
  if (shapes != shapes_ || steps_of_shapes_++ < config_.warm_up_steps)
    return false;
  // The phase that the step is in, waiting for data, is over.
  input.clock.Begin(Phase::kBetween);
  absl::Status recorded = Record(input);
  if (!recorded.ok()) return recorded;
  return graph_ != nullptr;
}

absl::Status CapturedStep::Record(const StepInput& input) {
  batches_.clear();
  for (const Batch& batch : input.micro_batches)
    batches_.push_back({batch.data.clone(), batch.target.clone()});
  dropout_seeds_.assign(input.dropout_seeds.begin(), input.dropout_seeds.end());
  learning_rate_ = optimizer_.MakeRate();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = hooks_.make_graph();
  const absl::Status mine =
      graph.ok() ? (*graph)->Capture([this] { return RunRecorded(); })
                 : graph.status();
  absl::StatusOr<bool> all = hooks_.on_all_ranks == nullptr
                                 ? absl::StatusOr<bool>(mine.ok())
                                 : hooks_.on_all_ranks(mine.ok());
  if (!all.ok()) return all.status();
  if (*all) {
    graph_ = *std::move(graph);
    SayOnce(absl::StrCat("from step ", input.step,
                         " on, a step is one launch of a graph"));
    return absl::OkStatus();
  }
  if (graph.ok()) graph->reset();
  if (!mine.ok()) {
    hooks_.say_of_rank(
        absl::StrCat("--cuda_graph: this step cannot be recorded: ",
                     std::string(mine.message())));
  }
  SayOnce("all steps run without it, as not all ranks could record theirs");
  return GiveUp();
}

absl::Status CapturedStep::GiveUp() {
  gave_up_ = true;
  batches_.clear();
  learning_rate_.reset();
  loss_.reset();
  optimizer_.ZeroGrad();  // those of the failed recording
  return hooks_.recover == nullptr ? absl::OkStatus() : hooks_.recover();
}

absl::Status CapturedStep::RunRecorded() {
  const ScopedRate rate(optimizer_, learning_rate_);
  StepClock clock = StepClock::Inert();
  absl::StatusOr<StepOutcome> outcome = step_({.step = 0,
                                               .micro_batches = batches_,
                                               .dropout_seeds = dropout_seeds_,
                                               .learning_rate = 0,
                                               .clock = clock,
                                               .traced = false,
                                               .watched = false});
  if (!outcome.ok()) return outcome.status();
  loss_ = outcome->loss;
  return absl::OkStatus();
}

StepOutcome CapturedStep::Replay(const StepInput& input) {
  input.clock.Begin(Phase::kCaptured);
  for (size_t i = 0; i < batches_.size(); ++i) {
    const Batch& batch = input.micro_batches[i];
    batches_[i].data.copy_(batch.data, /*non_blocking=*/true);
    batches_[i].target.copy_(batch.target, /*non_blocking=*/true);
  }
  learning_rate_.fill_(input.learning_rate);
  graph_->Replay();
  // The next replay writes over it.
  return StepOutcome{.loss = loss_.clone()};
}

void CapturedStep::SayOnce(const std::string& line) {
  if (std::find(said_.begin(), said_.end(), line) != said_.end()) return;
  said_.push_back(line);
  hooks_.say(absl::StrCat("--cuda_graph: ", line));
}

}  // namespace rankwise
