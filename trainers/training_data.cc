#include "trainers/training_data.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "samplers/distributed_sampler.h"
#include "samplers/open_dataset.h"

namespace rankwise {
namespace {

absl::Status CheckFits(const Dataset& dataset, const ModelSpec& model) {
  const bool regression = model.loss == LossKind::kMeanSquaredError;
  if (dataset.example_shape() == model.example_shape &&
      (dataset.num_classes() == 0) == regression) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--dataset=", dataset.name(), " has ",
      dataset.num_classes() == 0 ? "regression targets" : "class labels",
      " and examples of shape [", absl::StrJoin(dataset.example_shape(), ", "),
      "]; --model=", model.name, " wants ",
      regression ? "regression targets" : "class labels", " and shape [",
      absl::StrJoin(model.example_shape, ", "),
      "]; try --dataset=", model.default_dataset));
}

DataLoaderConfig LoaderConfig(const TrainConfig& config, const Worker& worker) {
  DataLoaderConfig loader;
  loader.batch_size = config.data.batch_size;
  loader.workers = config.data.workers;
  loader.device = worker.device;
  loader.pin_memory = worker.device.is_cuda();
  loader.transform.channels_last = true;
  return loader;
}

// Opens one split and the loader of this rank's share of it.
absl::Status OpenSplit(const TrainConfig& config, const ModelSpec& model,
                       const Worker& worker, Split split,
                       std::unique_ptr<Dataset>* dataset,
                       std::unique_ptr<Sampler>* sampler,
                       std::unique_ptr<DataLoader>* loader) {
  DatasetConfig dataset_config;
  dataset_config.name = config.data.dataset;
  dataset_config.data_dir = config.data.data_dir;
  dataset_config.train_size = config.data.train_size;
  dataset_config.test_size = config.data.test_size;
  dataset_config.seed = config.seed;
  absl::StatusOr<std::unique_ptr<Dataset>> opened =
      OpenDataset(dataset_config, split);
  if (!opened.ok()) return opened.status();
  *dataset = std::move(*opened);
  if (absl::Status fits = CheckFits(**dataset, model); !fits.ok()) return fits;

  const bool train = split == Split::kTrain;
  DistributedSamplerConfig shares;
  shares.num_replicas = worker.env.world_size;
  shares.rank = worker.env.rank;
  shares.shuffle = train;
  shares.seed = config.seed;
  shares.drop_last = train && config.data.drop_last;
  shares.mode = train ? DistributedSamplerConfig::Mode::kPadded
                      : DistributedSamplerConfig::Mode::kExact;
  auto created = DistributedSampler::Create((*dataset)->size(), shares);
  if (!created.ok()) return created.status();
  *sampler = std::move(*created);

  const DataLoaderConfig loader_config = LoaderConfig(config, worker);
  if (absl::Status valid = DataLoader::Validate(**dataset, loader_config);
      !valid.ok())
    return valid;
  *loader = std::make_unique<DataLoader>(dataset->get(), sampler->get(),
                                         loader_config);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingData> OpenTrainingData(const TrainConfig& config,
                                              const ModelSpec& model,
                                              const Worker& worker) {
  TrainingData data;
  absl::Status status =
      OpenSplit(config, model, worker, Split::kTrain, &data.train,
                &data.train_sampler, &data.train_loader);
  if (!status.ok()) return status;
  if (data.train_loader->batches_per_epoch() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an epoch has no batch: ", data.train->size(),
                     " training examples over ", worker.env.world_size,
                     " ranks with --drop_last; give more examples or leave out "
                     "--drop_last"));
  }
  if (config.evaluate) {
    status = OpenSplit(config, model, worker, Split::kTest, &data.test,
                       &data.test_sampler, &data.test_loader);
    if (!status.ok()) return status;
  }
  return data;
}

}  // namespace rankwise
