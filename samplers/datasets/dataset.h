#ifndef RANKWISE_SAMPLERS_DATASETS_DATASET_H_
#define RANKWISE_SAMPLERS_DATASETS_DATASET_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rankwise {

// A batch of examples. `data` is [B, example_shape...]; `target` is int64 [B]
// (class labels), int64 [B, T] (the token after each of `data`'s, int64 [B, T])
// or fp32 [B, k] (regression targets).
struct Batch {
  at::Tensor data;
  at::Tensor target;
};

// The two splits of every dataset.
enum class Split { kTrain, kTest };

// Returns "train" or "test".
constexpr const char* SplitName(Split split) {
  return split == Split::kTrain ? "train" : "test";
}

struct DatasetFacts {
  std::string name;  // as in DatasetConfig, such as "cifar10"
  int64_t size = 0;  // examples
  std::vector<int64_t> example_shape = {};  // such as {3, 32, 32}
  std::vector<int64_t> target_shape = {};   // of one example: {} for a label
  int64_t num_classes = 0;  // or number of token values; 0 for regression
};

// A finite, indexed set of examples in their stored dtype (uint8 images, fp32
// features, int64 tokens); the loader scales them, by the batch.
//
// Thread-safe: any number of threads may call any method concurrently.
//
//   std::unique_ptr<Dataset> dataset = ...;
//   Batch batch = dataset->Gather({7, 0, 7});  // repetition is fine
class Dataset {
 public:
  explicit Dataset(DatasetFacts facts) : facts_(std::move(facts)) {}
  virtual ~Dataset() = default;

  const DatasetFacts& facts() const { return facts_; }
  // Returns the number of examples. Valid indices are 0 .. size() - 1.
  int64_t size() const { return facts_.size; }
  // Returns the examples at `indices`, in that order, as newly allocated CPU
  // tensors. Throws c10::Error if an index is out of range.
  virtual Batch Gather(absl::Span<const int64_t> indices) const = 0;

 private:
  const DatasetFacts facts_;
};

// A dataset that writes its examples one by one into the batch's memory, data
// as Data and targets as Target.
template <typename Data, typename Target>
class WrittenDataset final : public Dataset {
 public:
  // Writes the row of one example; called concurrently by any thread.
  using Write = std::function<void(int64_t index, Data* data, Target* target)>;

  WrittenDataset(DatasetFacts facts, Write write)
      : Dataset(std::move(facts)), write_(std::move(write)) {}

  Batch Gather(absl::Span<const int64_t> indices) const override {
    const auto rows = [&](std::vector<int64_t> shape, at::ScalarType type) {
      shape.insert(shape.begin(), static_cast<int64_t>(indices.size()));
      return at::empty(shape, type);
    };
    const Batch batch{
        rows(facts().example_shape, c10::CppTypeToScalarType<Data>::value),
        rows(facts().target_shape, c10::CppTypeToScalarType<Target>::value)};
    Data* data = batch.data.mutable_data_ptr<Data>();
    Target* target = batch.target.mutable_data_ptr<Target>();
    for (const int64_t index : indices) {
      TORCH_CHECK_INDEX(index >= 0 && index < size(), facts().name,
                        ": there is no example ", index, "; the size is ",
                        size());
      write_(index, data, target);
      data += batch.data.stride(0);
      target += batch.target.stride(0);
    }
    return batch;
  }

 private:
  const Write write_;
};

using DatasetOr = absl::StatusOr<std::unique_ptr<Dataset>>;

// The dataset, and how much of it to use.
struct DatasetConfig {
  std::string name = "synthetic";  // one of DatasetNames()
  // Path of the files: the folder of `cifar10`; for `text` the file, or a
  // folder that contains only the file; for `tokens` a file or a folder, or
  // empty for generated tokens. Unused by other datasets.
  std::string data_dir = {};
  int64_t train_size = 50000, test_size = 10000;  // examples
  uint64_t seed = 0;                              // of generated datasets
  int64_t sequence_length = 128;  // tokens per example of `tokens` and `text`
  // If above 0, `synthetic` has vectors of `features` instead of images.
  int64_t features = 0;
  // Classes of those vectors; vocabulary size of files of `tokens`.
  int64_t num_classes = 0;

  int64_t size(Split split) const {
    return split == Split::kTrain ? train_size : test_size;
  }
};

// Returns the dataset names that OpenDataset accepts.
std::vector<std::string> DatasetNames();

// Opens one split. InvalidArgument for an unknown name, a negative size,
// sequences of fewer than one token, or vectors of fewer than two classes;
// otherwise the dataset's errors about its files.
DatasetOr OpenDataset(const DatasetConfig& config, Split split);

// The generated datasets need no files. An example is a function of (seed,
// split, index), in integer arithmetic except for OpenLinearRegression: the
// same on every machine, and computed in Gather. The learnable structure
// depends on the seed only, so both splits share it.

// Opens images with CIFAR-10's shape and number of classes, with enough
// structure to be learned and enough noise to need a few epochs. Every class
// has a smooth pattern. An image is the slightly displaced pattern of its
// class, mixed with a share of another class's pattern, plus noise on every
// pixel. If that share exceeds the class's own, the image is misleading, so no
// model reaches 100 % on the test split. data: uint8 [B, 3, 32, 32]; target:
// int64 [B].
//
// With F = config.features > 0, opens vectors in config.num_classes classes
// instead: the random pattern of the class, mixed with another class's as
// above, plus noise on every feature. data: fp32 [B, F], within -2 .. 2;
// target: int64 [B].
DatasetOr OpenSynthetic(const DatasetConfig& config, Split split);

// Opens the smallest dataset: y = w.x + b + noise, with 10 standard normal
// features, one target, and noise of standard deviation 0.1; no model's mean
// squared error falls below 0.01. data: fp32 [B, 10]; target: fp32 [B, 1].
DatasetOr OpenLinearRegression(const DatasetConfig& config, Split split);

// Opens a regression of 1024 targets on 1024 features: y = U V x + noise, with
// x uniform over -2 .. 2, V [8, 1024] and U [1024, 8] of random signs (scaled
// to a target variance of about 0.67), and noise of standard deviation 0.07.
// The low rank makes it fast to learn and to generate; no model's mean squared
// error falls below 0.0052. data: fp32 [B, 1024]; target: fp32 [B, 1024].
DatasetOr OpenRegression(const DatasetConfig& config, Split split);

// Opens sequences of a random Markov chain over 256 tokens, for language
// models: each token has four successors, with probabilities 1/2, 1/4, 1/8 and
// 1/16; with the remaining 1/16 the next token is uniformly random, like the
// first. The loss of uniform predictions is 5.55 (ln 256), that of the true
// chain 1.64. data: int64 [B, T]; target: int64 [B, T], the token after each.
DatasetOr OpenTokens(const DatasetConfig& config, Split split);

// Datasets from files are memory-mapped: ranks on one machine share one copy.
// The files must not be truncated while open.

// Opens CIFAR-10 in the layout of its binary release: files of 10,000 records,
// each of one label byte (0..9) and 3,072 pixel bytes (32x32, planes R, G, B).
// The train split is data_batch_1.bin .. data_batch_5.bin, the test split
// test_batch.bin. Source: https://www.cs.toronto.edu/~kriz/cifar.html
//
// Contains the first examples of `split`, which has 50,000 (train) or 10,000
// (test): data uint8 [B, 3, 32, 32]; target int64 [B]. data_dir is the folder
// with the .bin files, or its parent that contains cifar-10-batches-bin. Every
// file of the split is checked completely. NotFound: a missing folder or file
// (the message has download instructions). DataLoss: a file of the wrong size
// or a label above 9 (with the file and the byte offset).
DatasetOr OpenCifar10(const DatasetConfig& config, Split split);

// Opens any file as language-model data: its bytes are the tokens, 0 .. 255.
// The last tenth of the bytes is the test split, the rest the train split; each
// is cut into non-overlapping windows of T + 1 bytes (T tokens and the token
// after each), without the incomplete last window.
//
// Contains the first windows of `split`, or all if there are fewer: data int64
// [B, T]; target int64 [B, T], the token after each. data_dir is the file, or a
// folder with no other file (names that begin with a dot are ignored).
// InvalidArgument: no path, a folder with no or several files, or a split
// shorter than a window. NotFound: the path does not exist.
DatasetOr OpenText(const DatasetConfig& config, Split split);

// Opens files of token ids below V = config.num_classes, the vocabulary, as
// uint16 or uint32, in the format of llm.c (with a header) or nanoGPT (without
// one: uint16 if V <= 65,536); token_files.cc has the grammar. Each file is cut
// into non-overlapping windows of T + 1 ids (T tokens and the token after
// each), without the incomplete last window.
//
// data_dir is a folder, in which the train split is the files *train*.bin, in
// the order of their names, and the test split the other files *val*.bin; or it
// is one file. Without files for the test split, it is the last tenth of the
// windows, and the train split the rest.
//
// Contains the first windows of `split`, or all if there are fewer: data int64
// [B, T]; target int64 [B, T], the token after each. Opening checks each file's
// size, header and first window. InvalidArgument: V < 1, no train file, a file
// that is empty or shorter than a window, whose size differs from its header's
// or whose ids seem to be of another width, an id of V or above in the first
// window, or an empty split. NotFound: the path does not exist. Gather throws
// c10::Error for an id of V or above (with the file and the position).
DatasetOr OpenTokenFiles(const DatasetConfig& config, Split split);

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_DATASET_H_
