#include "samplers/datasets/open_dataset.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "samplers/datasets/cifar10.h"
#include "samplers/datasets/linear_regression.h"
#include "samplers/datasets/regression.h"
#include "samplers/datasets/synthetic.h"
#include "samplers/datasets/text.h"
#include "samplers/datasets/tokens.h"

namespace rankwise {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Dataset>>;

template <typename T>
Result AsDataset(absl::StatusOr<std::unique_ptr<T>> dataset) {
  if (!dataset.ok()) return dataset.status();
  return std::unique_ptr<Dataset>(*std::move(dataset));
}

Result OpenSynthetic(const DatasetConfig& config, Split split, int64_t size) {
  return AsDataset(Synthetic::Open(config.seed, split, size));
}

Result OpenCifar10(const DatasetConfig& config, Split split, int64_t size) {
  return AsDataset(Cifar10::Open(config.data_dir, split, size));
}

Result OpenLinear(const DatasetConfig& config, Split split, int64_t size) {
  return AsDataset(LinearRegression::Open(config.seed, split, size));
}

Result OpenRegression(const DatasetConfig& config, Split split, int64_t size) {
  return AsDataset(Regression::Open(config.seed, split, size));
}

Result OpenTokens(const DatasetConfig& config, Split split, int64_t size) {
  return AsDataset(
      Tokens::Open(config.seed, split, size, config.sequence_length));
}

Result OpenText(const DatasetConfig& config, Split split, int64_t size) {
  return AsDataset(
      Text::Open(config.data_dir, split, size, config.sequence_length));
}

struct Entry {
  const char* name;
  Result (*open)(const DatasetConfig& config, Split split, int64_t size);
};

constexpr Entry kEntries[] = {
    {"synthetic", OpenSynthetic}, {"cifar10", OpenCifar10},
    {"linear", OpenLinear},       {"regression", OpenRegression},
    {"tokens", OpenTokens},       {"text", OpenText},
};

}  // namespace

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const DatasetConfig& config, Split split) {
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
