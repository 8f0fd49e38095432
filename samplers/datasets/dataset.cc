#include "samplers/datasets/dataset.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

struct Entry {
  const char* name;
  DatasetOr (*open)(const DatasetConfig& config, Split split, int64_t size);
};

constexpr Entry kEntries[] = {
    {"synthetic",
     [](const DatasetConfig& config, Split split, int64_t size) {
       return OpenSynthetic(config.seed, split, size);
     }},
    {"cifar10",
     [](const DatasetConfig& config, Split split, int64_t size) {
       return OpenCifar10(config.data_dir, split, size);
     }},
    {"linear",
     [](const DatasetConfig& config, Split split, int64_t size) {
       return OpenLinearRegression(config.seed, split, size);
     }},
    {"regression",
     [](const DatasetConfig& config, Split split, int64_t size) {
       return OpenRegression(config.seed, split, size);
     }},
    {"tokens",
     [](const DatasetConfig& config, Split split, int64_t size) {
       return OpenTokens(config.seed, split, size, config.sequence_length);
     }},
    {"text",
     [](const DatasetConfig& config, Split split, int64_t size) {
       return OpenText(config.data_dir, split, size, config.sequence_length);
     }},
};

}  // namespace

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

DatasetOr OpenDataset(const DatasetConfig& config, Split split) {
  const int64_t size =
      split == Split::kTrain ? config.train_size : config.test_size;
  for (const Entry& entry : kEntries) {
    if (config.name == entry.name) return entry.open(config, split, size);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no dataset \"", config.name, "\"; known are ",
                   absl::StrJoin(DatasetNames(), ", ")));
}

}  // namespace rankwise
