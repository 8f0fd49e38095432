// The train and test sets of a run, and this rank's share and loaders.
#ifndef RANKWISE_TRAINERS_LOOP_TRAINING_DATA_H_
#define RANKWISE_TRAINERS_LOOP_TRAINING_DATA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "samplers/datasets/dataset.h"
#include "samplers/loader/data_loader.h"
#include "samplers/sampling/samplers.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// This rank's share of a dataset. Each member reads from the one before.
struct DataSplit {
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<DistributedSampler> sampler;
  std::unique_ptr<DataLoader> loader;
};

struct TrainingData {
  DataSplit train;
  // nullptr without evaluation. The sampler is exact: every test example is on
  // one rank, once.
  DataSplit test;
};

// Without `reads_data` the batches have the right number of examples without
// contents, for the stages in the middle of a pipeline.
//
// InvalidArgument if the dataset does not fit the model, or the dataset's own
// error about its files.
absl::StatusOr<TrainingData> OpenTrainingData(const TrainConfig& config,
                                              const ModelSpec& model,
                                              const Worker& worker,
                                              bool reads_data = true);

// Return the optimizer steps of an epoch and of the whole run with `loader`.
int64_t StepsPerEpoch(const TrainConfig& config, const DataLoader& loader);
int64_t TotalSteps(const TrainConfig& config, const DataLoader& loader);

// Returns the next `count` batches of an epoch; fewer at its end.
absl::StatusOr<std::vector<Batch>> NextBatches(DataLoader& loader,
                                               int64_t count);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_TRAINING_DATA_H_
