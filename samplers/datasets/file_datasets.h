// The datasets that read files. Without tensors, so that programs without
// LibTorch can check the command lines of trainers.
#ifndef RANKWISE_SAMPLERS_DATASETS_FILE_DATASETS_H_
#define RANKWISE_SAMPLERS_DATASETS_FILE_DATASETS_H_

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// The DatasetNames() that take DatasetConfig::data_dir. Without it, `tokens` is
// generated and the others cannot be opened.
inline constexpr absl::string_view kFileDatasets[] = {"cifar10", "text",
                                                      "tokens"};

inline bool ReadsFiles(absl::string_view dataset) {
  return absl::c_linear_search(kFileDatasets, dataset);
}

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_FILE_DATASETS_H_
