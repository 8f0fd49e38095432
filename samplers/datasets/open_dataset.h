#ifndef RANKWISE_SAMPLERS_DATASETS_OPEN_DATASET_H_
#define RANKWISE_SAMPLERS_DATASETS_OPEN_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {

// Which dataset, and how much of it.
struct DatasetConfig {
  // One of DatasetNames().
  std::string name = "synthetic";
  // Where the files are: the folder of `cifar10`; the file of `text`, or the
  // folder with it alone. Others read none.
  std::string data_dir = {};
  // Examples in the train and in the test split. `cifar10` takes the first so
  // many, and has no more than 50,000 and 10,000; `text` takes the first so
  // many windows, or all if the file has fewer.
  int64_t train_size = 50000;
  int64_t test_size = 10000;
  // What generated datasets are generated from.
  uint64_t seed = 0;
  // Tokens per example of `tokens` and `text`.
  int64_t sequence_length = 128;
};

// The names that OpenDataset knows: synthetic, cifar10, linear, regression,
// tokens, text.
std::vector<std::string> DatasetNames();

// Opens one split. InvalidArgument for an unknown name or an impossible size;
// otherwise what the dataset itself has to say about its files.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const DatasetConfig& config, Split split);

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_OPEN_DATASET_H_
