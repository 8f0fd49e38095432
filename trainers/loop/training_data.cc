#include "trainers/loop/training_data.h"

#include <ATen/ops/empty.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "samplers/datasets/dataset.h"
#include "samplers/sampling/samplers.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// As many examples as another dataset, without their contents.
class Counted final : public Dataset {
 public:
  explicit Counted(const Dataset& dataset)
      : size_(dataset.size()), name_(dataset.name()) {}

  int64_t size() const override { return size_; }
  absl::string_view name() const override { return name_; }
  std::vector<int64_t> example_shape() const override { return {0}; }
  int64_t num_classes() const override { return 0; }
  Batch Gather(absl::Span<const int64_t> indices) const override {
    const torch::Tensor nothing =
        at::empty({static_cast<int64_t>(indices.size()), 0});
    return {nothing, nothing};
  }

 private:
  const int64_t size_;
  const std::string name_;
};

std::string Describe(int64_t num_classes) {
  return num_classes == 0 ? "regression targets" : "class labels";
}

absl::Status CheckFits(const Dataset& dataset, const ModelSpec& model) {
  const int64_t classes = dataset.num_classes();
  if (dataset.example_shape() != model.example_shape ||
      (classes == 0) != (model.num_classes == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dataset=", dataset.name(), " has ", Describe(classes),
        " and examples of shape [",
        absl::StrJoin(dataset.example_shape(), ", "), "]; --model=", model.name,
        " wants ", Describe(model.num_classes), " and shape [",
        absl::StrJoin(model.example_shape, ", "),
        "]; try --dataset=", model.default_dataset));
  }
  if (classes > model.num_classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dataset=", dataset.name(), " has ", classes,
        " classes or token values; --model=", model.name, " tells only ",
        model.num_classes, " apart; try --dataset=", model.default_dataset));
  }
  return absl::OkStatus();
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
                       const Worker& worker, bool reads_data, Split split,
                       std::unique_ptr<Dataset>* dataset,
                       std::unique_ptr<Sampler>* sampler,
                       std::unique_ptr<DataLoader>* loader) {
  DatasetConfig dataset_config;
  dataset_config.name = config.data.dataset;
  dataset_config.data_dir = config.data.data_dir;
  dataset_config.train_size = config.data.train_size;
  dataset_config.test_size = config.data.test_size;
  dataset_config.seed = config.seed;
  if (model.example_shape.size() == 1)
    dataset_config.sequence_length = model.example_shape[0];
  ASSIGN_OR_RETURN(std::unique_ptr<Dataset> opened,
                   OpenDataset(dataset_config, split));
  *dataset = std::move(opened);
  if (absl::Status fits = CheckFits(**dataset, model); !fits.ok()) return fits;
  if (!reads_data) *dataset = std::make_unique<Counted>(**dataset);

  const bool train = split == Split::kTrain;
  DistributedSamplerConfig shares;
  shares.num_replicas = worker.dp_size();
  shares.rank = worker.dp_rank();
  shares.shuffle = train;
  shares.seed = config.seed;
  shares.drop_last = train && config.data.drop_last;
  shares.mode = train ? DistributedSamplerConfig::Mode::kPadded
                      : DistributedSamplerConfig::Mode::kExact;
  ASSIGN_OR_RETURN(auto created,
                   DistributedSampler::Create((*dataset)->size(), shares));
  *sampler = std::move(created);

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
                                              const Worker& worker,
                                              bool reads_data) {
  TrainingData data;
  RETURN_IF_ERROR(OpenSplit(config, model, worker, reads_data, Split::kTrain,
                            &data.train, &data.train_sampler,
                            &data.train_loader));
  if (data.train_loader->batches_per_epoch() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an epoch has no batch: ", data.train->size(),
                     " training examples over ", worker.dp_size(),
                     worker.dp_size() == 1 ? " rank" : " ranks",
                     " with --drop_last; give more examples or leave out "
                     "--drop_last"));
  }
  if (config.evaluate) {
    RETURN_IF_ERROR(OpenSplit(config, model, worker, reads_data, Split::kTest,
                              &data.test, &data.test_sampler,
                              &data.test_loader));
  }
  return data;
}

}  // namespace rankwise
