#include "samplers/datasets/dataset.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

struct Entry {
  const char* name;
  DatasetOr (*open)(const DatasetConfig& config, Split split);
  bool sequences = false;  // whether examples are token sequences
};

DatasetOr OpenTokensOrFiles(const DatasetConfig& config, Split split) {
  return config.data_dir.empty() ? OpenTokens(config, split)
                                 : OpenTokenFiles(config, split);
}

constexpr Entry kEntries[] = {
    {"synthetic", OpenSynthetic},        {"cifar10", OpenCifar10},
    {"linear", OpenLinearRegression},    {"regression", OpenRegression},
    {"tokens", OpenTokensOrFiles, true}, {"text", OpenText, true},
};

absl::Status CheckSizes(const Entry& entry, const DatasetConfig& config,
                        Split split) {
  if (config.size(split) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        entry.name, ": the ", SplitName(split), " split is to have ",
        config.size(split), " examples; it must be 0 or more"));
  }
  if (!entry.sequences || config.sequence_length >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(entry.name, ": an example is to have ",
                   config.sequence_length, " tokens; it must be 1 or more"));
}

}  // namespace

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

DatasetOr OpenDataset(const DatasetConfig& config, Split split) {
  for (const Entry& entry : kEntries) {
    if (config.name != entry.name) continue;
    RETURN_IF_ERROR(CheckSizes(entry, config, split));
    return entry.open(config, split);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no dataset \"", config.name, "\"; known are ",
                   absl::StrJoin(DatasetNames(), ", ")));
}

}  // namespace rankwise
