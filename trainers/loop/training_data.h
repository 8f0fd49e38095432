// The train and test sets of a run, this rank's share of them, and the loaders
// that bring it.
#ifndef RANKWISE_TRAINERS_LOOP_TRAINING_DATA_H_
#define RANKWISE_TRAINERS_LOOP_TRAINING_DATA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "samplers/datasets/dataset.h"
#include "samplers/loader/data_loader.h"
#include "samplers/sampling/samplers.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

struct TrainingData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Sampler> train_sampler;
  std::unique_ptr<DataLoader> train_loader;
  // Null without evaluation. The sampler is exact: every test example on one
  // rank, once.
  std::unique_ptr<Dataset> test;
  std::unique_ptr<Sampler> test_sampler;
  std::unique_ptr<DataLoader> test_loader;
};

// Without `reads_data` the batches have the right number of examples, but
// nothing in them: for the stages in the middle of a pipeline.
//
// InvalidArgument if the dataset does not fit the model, or whatever the
// dataset has to say about its files.
absl::StatusOr<TrainingData> OpenTrainingData(const TrainConfig& config,
                                              const ModelSpec& model,
                                              const Worker& worker,
                                              bool reads_data = true);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_TRAINING_DATA_H_
