#include "trainers/loop/training_data.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Shapes of an example and its targets.
struct ExampleKind {
  std::vector<int64_t> shape;
  std::vector<int64_t> targets;  // their shape
  bool regression = false;

  bool operator==(const ExampleKind&) const = default;
};

std::string Describe(const ExampleKind& kind) {
  const char* targets = kind.regression        ? "regression targets"
                        : kind.targets.empty() ? "class labels"
                                               : "tokens to predict";
  return absl::StrCat(targets, " and examples of shape [",
                      absl::StrJoin(kind.shape, ", "), "]");
}

ExampleKind KindOf(const DatasetFacts& dataset) {
  return {dataset.example_shape, dataset.target_shape,
          dataset.num_classes == 0};
}

// The last dimension of a classifier's output is its classes.
ExampleKind KindOf(const ModelSpec& model) {
  ExampleKind kind = {model.example_shape, model.layers.back().output_shape,
                      model.num_classes == 0};
  if (!kind.regression) kind.targets.pop_back();
  return kind;
}

absl::Status CheckFits(const DatasetFacts& dataset, const ModelSpec& model) {
  const int64_t classes = dataset.num_classes;
  std::string problem;
  if (KindOf(dataset) != KindOf(model)) {
    problem = absl::StrCat(Describe(KindOf(dataset)), "; --model=", model.name,
                           " takes ", Describe(KindOf(model)));
  } else if (classes > model.num_classes) {
    problem =
        absl::StrCat(classes, " classes or token values; --model=", model.name,
                     " has only ", model.num_classes);
  }
  if (problem.empty()) return absl::OkStatus();
  if (dataset.name != model.default_dataset)
    absl::StrAppend(&problem, "; try --dataset=", model.default_dataset);
  return absl::InvalidArgumentError(
      absl::StrCat("--dataset=", dataset.name, " has ", problem));
}

// Returns a dataset of as many examples as `dataset`, without contents.
std::unique_ptr<Dataset> WithoutContents(DatasetFacts dataset) {
  dataset.example_shape = dataset.target_shape = {1};
  return std::make_unique<WrittenDataset<float, float>>(
      std::move(dataset),
      [](int64_t, float* data, float* target) { *data = *target = 0; });
}

// Opens one split and the loader of this rank's share of it.
absl::StatusOr<DataSplit> OpenSplit(const TrainConfig& config,
                                    const ModelSpec& model,
                                    const Worker& worker, bool reads_data,
                                    Split split) {
  DatasetConfig dataset{.name = config.data.dataset,
                        .data_dir = config.data.data_dir,
                        .train_size = config.data.train_size,
                        .test_size = config.data.test_size,
                        .seed = config.seed};
  if (const ExampleKind kind = KindOf(model); kind.shape.size() == 1) {
    dataset.sequence_length = kind.shape[0];
    dataset.num_classes = model.num_classes;
    if (!kind.regression && kind.targets.empty())
      dataset.features = kind.shape[0];
  }
  DataSplit opened;
  DatasetOr found = OpenDataset(dataset, split);
  // Missing files, or files that do not match --data_dir's purpose.
  if (absl::IsNotFound(found.status()) ||
      absl::IsFailedPrecondition(found.status()))
    return absl::InvalidArgumentError(found.status().message());
  ASSIGN_OR_RETURN(opened.dataset, std::move(found));
  RETURN_IF_ERROR(CheckFits(opened.dataset->facts(), model));
  using Mode = DistributedSamplerConfig::Mode;
  const bool train = split == Split::kTrain;
  if (!reads_data || (train && worker.data_rank() < 0))
    opened.dataset = WithoutContents(opened.dataset->facts());

  ASSIGN_OR_RETURN(
      opened.sampler,
      DistributedSampler::Create(
          opened.dataset->size(),
          {.num_replicas = train ? worker.data_ranks() : worker.dp_size(),
           .rank = train ? std::max(worker.data_rank(), 0) : worker.dp_rank(),
           .shuffle = train,
           .seed = config.seed,
           .drop_last = train && config.data.drop_last,
           .mode = train ? Mode::kPadded : Mode::kExact}));
  opened.loader = std::make_unique<DataLoader>(
      opened.dataset.get(), opened.sampler.get(),
      DataLoaderConfig{.batch_size = config.data.batch_size,
                       .workers = config.data.workers,
                       .device = worker.device});
  return opened;
}

}  // namespace

absl::StatusOr<TrainingData> OpenTrainingData(const TrainConfig& config,
                                              const ModelSpec& model,
                                              const Worker& worker,
                                              bool reads_data) {
  TrainingData data;
  ASSIGN_OR_RETURN(data.train,
                   OpenSplit(config, model, worker, reads_data, Split::kTrain));
  if (data.train.loader->batches_per_epoch() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an epoch has no batch: ",
        Counted(data.train.dataset->size(), "training example"), " over ",
        Counted(worker.data_ranks(), "rank"),
        " with --drop_last; give more examples or leave out --drop_last"));
  }
  if (config.evaluate) {
    ASSIGN_OR_RETURN(
        data.test, OpenSplit(config, model, worker, reads_data, Split::kTest));
  }
  return data;
}

int64_t StepsPerEpoch(const TrainConfig& config, const DataLoader& loader) {
  const int64_t batches = loader.batches_per_epoch();
  return (batches + config.accumulate - 1) / config.accumulate;
}

int64_t TotalSteps(const TrainConfig& config, const DataLoader& loader) {
  const int64_t steps = StepsPerEpoch(config, loader) * config.epochs;
  return config.max_steps > 0 ? std::min(steps, config.max_steps) : steps;
}

absl::StatusOr<std::vector<Batch>> NextBatches(DataLoader& loader,
                                               int64_t count) {
  std::vector<Batch> batches;
  while (static_cast<int64_t>(batches.size()) < count) {
    ASSIGN_OR_RETURN(std::optional<Batch> batch, loader.Next());
    if (!batch.has_value()) break;
    batches.push_back(*std::move(batch));
  }
  return batches;
}

}  // namespace rankwise
