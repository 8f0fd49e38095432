#include "trainers/capture_if_asked.h"

#include <ATen/ops/full.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/graph.h"
#include "trainers/captured_step.h"

namespace rankwise {
namespace {

// What is known without trying.
std::string WhyNotRecordable(const TrainConfig& config, const Worker& worker) {
  if (config.model.dropout > 0) {
    return absl::StrCat("with --dropout=", config.model.dropout,
                        " the host chooses each step's masks");
  }
  if (worker.comm != nullptr && worker.comm->backend() != "nccl") {
    return absl::StrCat(std::string(worker.comm->backend()),
                        " communicates through the host; only --backend=nccl's "
                        "collectives can be recorded");
  }
  return "";
}

absl::StatusOr<bool> OnAllRanks(Communicator& comm, bool mine) {
  torch::Tensor failures =
      at::full({1}, mine ? 0.0f : 1.0f,
               at::TensorOptions(comm.device()).dtype(at::kFloat));
  absl::Status reduced = comm.AllReduce(failures);
  if (!reduced.ok()) return reduced;
  return failures.item<float>() == 0;
}

}  // namespace

StepFunction CaptureIfAsked(const TrainConfig& config, const Worker& worker,
                            TrainingRun& run, RecordableStep step) {
  if (!config.cuda_graph) return std::move(step.step);
  CapturedStepHooks hooks;
  hooks.make_graph = [&worker] { return MakeDeviceGraph(worker.device); };
  if (worker.comm != nullptr) {
    hooks.on_all_ranks = [&worker](bool mine) {
      return OnAllRanks(*worker.comm, mine);
    };
  }
  hooks.recover = std::move(step.recover);
  hooks.say = [&run](const std::string& line) { run.Say(line); };
  hooks.say_of_rank = [&run](const std::string& line) { run.SayRank(line); };
  const auto captured = std::make_shared<CapturedStep>(
      std::move(step.step), run.optimizer(),
      CapturedStepConfig{.warm_up_steps = step.warm_up_steps,
                         .refusal = WhyNotRecordable(config, worker)},
      std::move(hooks));
  return [captured](const StepInput& input) { return captured->Run(input); };
}

}  // namespace rankwise
