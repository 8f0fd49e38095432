#include "trainers/stage_profile.h"

#include <ATen/Context.h>
#include <ATen/ops/tensor.h>

#include <optional>

#include "absl/status/status.h"
#include "parallel/comm/communicator.h"
#include "trainers/autocast.h"
#include "trainers/models/profile.h"
#include "trainers/stage_split.h"
#include "trainers/training_data.h"

namespace rankwise {
namespace {

absl::StatusOr<std::vector<LayerProfile>> ProfileModel(
    const TrainConfig& config, const ModelSpec& spec, torch::Device device) {
  constexpr int kRepetitions = 5;
  Worker alone;
  alone.device = device;
  absl::StatusOr<TrainingData> data = OpenTrainingData(config, spec, alone);
  if (!data.ok()) return data.status();
  data->train_loader->StartEpoch(1);
  absl::StatusOr<std::optional<Batch>> batch = data->train_loader->Next();
  if (!batch.ok()) return batch.status();
  at::manual_seed(config.seed);
  Model model(spec);
  ToChannelsLast(model);
  model.to(device);
  AutocastScope autocast(config.precision, device.type());
  return ProfileLayers(model, (*batch)->data, kRepetitions);
}

// The first rank's `seconds`, one per layer; from other ranks they are not
// read.
absl::StatusOr<std::vector<double>> TellAll(std::vector<double> seconds,
                                            const Worker& worker) {
  at::Tensor shared = at::tensor(seconds, at::kDouble).to(worker.device);
  if (worker.comm != nullptr) {
    absl::Status status = worker.comm->Broadcast(shared, /*root=*/0);
    if (!status.ok()) return status;
  }
  shared = shared.cpu();
  const double* first = shared.data_ptr<double>();
  return std::vector<double>(first, first + seconds.size());
}

}  // namespace

absl::StatusOr<ModelSplit> SplitModel(const TrainConfig& config,
                                      const ModelSpec& model,
                                      const Worker& worker,
                                      const std::string& split,
                                      int num_stages) {
  ModelSplit result;
  absl::StatusOr<std::vector<LayerRange>> stages;
  if (split == "time") {
    std::vector<double> seconds(model.layers.size());
    if (worker.is_first()) {
      absl::StatusOr<std::vector<LayerProfile>> profile =
          ProfileModel(config, model, worker.device);
      if (!profile.ok()) return profile.status();
      result.profile = *std::move(profile);
      for (size_t i = 0; i < seconds.size(); ++i) {
        seconds[i] = result.profile[i].forward_seconds +
                     result.profile[i].backward_seconds;
      }
    }
    absl::StatusOr<std::vector<double>> costs = TellAll(seconds, worker);
    if (!costs.ok()) return costs.status();
    stages = SplitByCosts(*costs, num_stages);
  } else {
    stages = SplitByFacts(model, split, num_stages);
  }
  if (!stages.ok()) return stages.status();
  result.stages = *std::move(stages);
  return result;
}

}  // namespace rankwise
