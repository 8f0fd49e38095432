#ifndef RANKWISE_SAMPLERS_DATASETS_DATASET_H_
#define RANKWISE_SAMPLERS_DATASETS_DATASET_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rankwise {

// Examples that travel together. `data` is [B, example_shape...]; `target` is
// int64 [B] (class labels), int64 [B, T] (the token after each of `data`'s,
// int64 [B, T]) or fp32 [B, k] (regression targets).
struct Batch {
  at::Tensor data;
  at::Tensor target;
};

// The two halves of every dataset.
enum class Split { kTrain, kTest };

// "train" or "test".
constexpr const char* SplitName(Split split) {
  return split == Split::kTrain ? "train" : "test";
}

// A finite, indexed set of examples, in the dtype it is stored in (uint8
// images, fp32 features, int64 tokens): scaling is the loader's work, on whole
// batches.
//
// Thread-safe: any number of threads may call any method at the same time.
//
//   std::unique_ptr<Dataset> dataset = ...;
//   Batch batch = dataset->Gather({7, 0, 7});  // repetition is fine
class Dataset {
 public:
  virtual ~Dataset() = default;

  // The number of examples; valid indices are 0 .. size() - 1.
  virtual int64_t size() const = 0;
  // The name it is opened by, such as "cifar10".
  virtual absl::string_view name() const = 0;
  // The shape of one example, such as {3, 32, 32}.
  virtual std::vector<int64_t> example_shape() const = 0;
  // Or token values; 0 for regression.
  virtual int64_t num_classes() const = 0;
  // The examples at `indices`, in that order, as freshly allocated CPU tensors.
  // Throws c10::Error when an index is out of range.
  virtual Batch Gather(absl::Span<const int64_t> indices) const = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_DATASET_H_
