#include "samplers/sampling/sequential_sampler.h"

#include <numeric>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {

absl::StatusOr<std::unique_ptr<SequentialSampler>> SequentialSampler::Create(
    int64_t dataset_size) {
  if (dataset_size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("SequentialSampler: the dataset size is ", dataset_size,
                     "; it must be 0 or more"));
  }
  return absl::WrapUnique(new SequentialSampler(dataset_size));
}

std::vector<int64_t> SequentialSampler::Indices() {
  std::vector<int64_t> indices(size_);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

}  // namespace rankwise
