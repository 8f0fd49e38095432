#include "trainers/graphs/captured_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/graph.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/objective.h"
#include "trainers/observe/step_log.h"

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

// Makes the optimizer read its rate from a tensor for a scope.
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

// Returns the reason, if it is known without an attempt; else "".
std::string WhyNotCapturable(const TrainConfig& config, const Worker& worker) {
  if (config.model.dropout > 0) {
    return absl::StrCat("with --dropout=", config.model.dropout,
                        " the host chooses each step's masks");
  }
  if (worker.comm != nullptr && !worker.comm->runs_on_device()) {
    return absl::StrCat(std::string(worker.comm->backend()),
                        " communicates through the host; only --backend=nccl's "
                        "collectives can be captured");
  }
  return "";
}

absl::StatusOr<bool> OnAllRanks(Communicator& comm, bool mine) {
  torch::Tensor failures =
      at::full({1}, mine ? 0.0f : 1.0f,
               at::TensorOptions(comm.device()).dtype(at::kFloat));
  RETURN_IF_ERROR(comm.AllReduce(failures));
  return failures.item<float>() == 0;
}

}  // namespace

absl::StatusOr<StepOutcome> CapturedStep::Run(const StepInput& input) {
  if (!step_.refusal.empty() && !gave_up_) {
    gave_up_ = true;
    SayOnce(absl::StrCat("all steps run without it: ", step_.refusal));
  }
  if (gave_up_) return step_.step(input);
  if (input.watched) {
    SayOnce(
        "steps that are traced, or whose communication is recorded, run "
        "without it: a graph cannot be observed");
    return step_.step(input);
  }
  ASSIGN_OR_RETURN(bool ready, Ready(input));
  return ready ? Replay(input) : step_.step(input);
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
  if (shapes != shapes_ || steps_of_shapes_++ < step_.warm_up_steps)
    return false;
  // The current phase, waiting for data, is over.
  input.clock.Begin(Phase::kBetween);
  RETURN_IF_ERROR(Capture(input));
  return graph_ != nullptr;
}

absl::Status CapturedStep::Capture(const StepInput& input) {
  batches_.clear();
  for (const Batch& batch : input.micro_batches)
    batches_.push_back({batch.data.clone(), batch.target.clone()});
  dropout_seeds_.assign(input.dropout_seeds.begin(), input.dropout_seeds.end());
  learning_rate_ = optimizer_.MakeRate();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = step_.make_graph();
  const absl::Status mine =
      graph.ok() ? (*graph)->Capture([this] { return RunCaptured(); })
                 : graph.status();
  ASSIGN_OR_RETURN(bool all, step_.on_all_ranks == nullptr
                                 ? absl::StatusOr<bool>(mine.ok())
                                 : step_.on_all_ranks(mine.ok()));
  if (all) {
    graph_ = *std::move(graph);
    SayOnce(absl::StrCat("from step ", input.step,
                         " on, a step is one launch of a graph"));
    return absl::OkStatus();
  }
  if (graph.ok()) graph->reset();
  if (!mine.ok()) {
    step_.say_of_rank(
        absl::StrCat("--cuda_graph: this step cannot be captured: ",
                     std::string(mine.message())));
  }
  SayOnce("all steps run without it, as not all ranks could capture theirs");
  return GiveUp();
}

absl::Status CapturedStep::GiveUp() {
  gave_up_ = true;
  batches_.clear();
  learning_rate_.reset();
  loss_.reset();
  gradient_norm_.reset();
  optimizer_.ZeroGrad();  // gradients of the failed capture
  return step_.recover == nullptr ? absl::OkStatus() : step_.recover();
}

absl::Status CapturedStep::RunCaptured() {
  const ScopedRate rate(optimizer_, learning_rate_);
  StepClock clock = StepClock::Inert();
  ASSIGN_OR_RETURN(StepOutcome outcome,
                   step_.step({.step = 0,
                               .ends_epoch = false,
                               .micro_batches = batches_,
                               .dropout_seeds = dropout_seeds_,
                               .learning_rate = 0,
                               .clock = clock,
                               .traced = false,
                               .watched = false}));
  loss_ = outcome.loss;
  gradient_norm_ = optimizer_.gradient_norm();
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
  // Cloned because the next replay overwrites them.
  StepOutcome outcome{.loss = loss_.clone()};
  if (gradient_norm_.defined()) outcome.gradient_norm = gradient_norm_.clone();
  return outcome;
}

void CapturedStep::SayOnce(const std::string& line) {
  if (absl::c_linear_search(said_, line)) return;
  said_.push_back(line);
  step_.say(absl::StrCat("--cuda_graph: ", line));
}

StepFunction CaptureIfRequested(const TrainConfig& config, const Worker& worker,
                                TrainingRun& run, CapturableStep step) {
  if (!config.cuda_graph) return std::move(step.step);
  step.refusal = WhyNotCapturable(config, worker);
  step.make_graph = [&worker] { return MakeDeviceGraph(worker.device); };
  if (worker.comm != nullptr) {
    step.on_all_ranks = [&worker](bool mine) {
      return OnAllRanks(*worker.comm, mine);
    };
  }
  step.say = [&run](const std::string& line) { run.Say(line); };
  step.say_of_rank = [&run](const std::string& line) { run.SayRank(line); };
  const auto captured =
      std::make_shared<CapturedStep>(std::move(step), run.optimizer());
  return [captured](const StepInput& input) { return captured->Run(input); };
}

}  // namespace rankwise
