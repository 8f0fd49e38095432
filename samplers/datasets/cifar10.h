#ifndef RANKWISE_SAMPLERS_DATASETS_CIFAR10_H_
#define RANKWISE_SAMPLERS_DATASETS_CIFAR10_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/mapped_file.h"

namespace rankwise {

// CIFAR-10 as its binary release lays it out: files of 10,000 records, a record
// being one label byte (0..9) and 3,072 pixel bytes (32x32, planes R, G, B).
// The train split is data_batch_1.bin .. data_batch_5.bin, the test split
// test_batch.bin. Source: https://www.cs.toronto.edu/~kriz/cifar.html
//
// The files are memory-mapped: ranks on one machine share one copy, and no
// epoch copies more than its batches. They must not be cut short while open.
class Cifar10 final : public Dataset {
 public:
  static constexpr int64_t kPixelBytes = 3 * 32 * 32;
  static constexpr int64_t kRecordBytes = 1 + kPixelBytes;
  static constexpr int64_t kRecordsPerFile = 10000;
  static constexpr int64_t kFileBytes = kRecordsPerFile * kRecordBytes;
  static constexpr int64_t kNumClasses = 10;

  // How many examples the release has in `split`.
  static int64_t SizeOf(Split split);

  // Opens the first `size` examples of `split` (at most SizeOf(split)). `dir`
  // is the folder with the .bin files, or one that has it as
  // cifar-10-batches-bin. Every file of the split is checked, whole.
  // NotFound: a folder or file is missing (the message says what to download
  // and where to put it). DataLoss: a file of the wrong size or a label above
  // 9 (the message names the file and the byte offset).
  static absl::StatusOr<std::unique_ptr<Cifar10>> Open(const std::string& dir,
                                                       Split split,
                                                       int64_t size);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  absl::string_view name() const override { return "cifar10"; }
  std::vector<int64_t> example_shape() const override { return {3, 32, 32}; }
  int64_t num_classes() const override { return kNumClasses; }
  // data: uint8 [B, 3, 32, 32]; target: int64 [B].
  Batch Gather(absl::Span<const int64_t> indices) const override;

 private:
  Cifar10(std::vector<MappedFile> files, std::vector<uint8_t> labels);

  const std::vector<MappedFile> files_;
  const std::vector<uint8_t> labels_;  // one per example, copied at Open
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_CIFAR10_H_
