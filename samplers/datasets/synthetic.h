#ifndef RANKWISE_SAMPLERS_DATASETS_SYNTHETIC_H_
#define RANKWISE_SAMPLERS_DATASETS_SYNTHETIC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {

// Images of CIFAR-10's shape and number of classes that need no files: enough
// structure to be learned, enough noise that it takes a few epochs.
//
// Every class has a smooth pattern. An image is the pattern of its class, a
// little displaced, with a share of another class's pattern mixed in and noise
// on every pixel. Where that share outweighs the class's own pattern the image
// misleads, so that no model reaches 100 % on the test split.
//
// An example is a function of (seed, split, index) in integer arithmetic only:
// the same on every machine, and made when it is asked for, so that opening is
// free and no image is kept in memory.
class Synthetic final : public Dataset {
 public:
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kPixels = kChannels * kSide * kSide;
  static constexpr int64_t kNumClasses = 10;

  // InvalidArgument when `size` is negative.
  static absl::StatusOr<std::unique_ptr<Synthetic>> Open(uint64_t seed,
                                                         Split split,
                                                         int64_t size);

  int64_t size() const override { return size_; }
  absl::string_view name() const override { return "synthetic"; }
  std::vector<int64_t> example_shape() const override {
    return {kChannels, kSide, kSide};
  }
  int64_t num_classes() const override { return kNumClasses; }
  // data: uint8 [B, 3, 32, 32]; target: int64 [B].
  Batch Gather(absl::Span<const int64_t> indices) const override;

 private:
  Synthetic(uint64_t seed, Split split, int64_t size);

  // Writes one image to `pixels` and returns its label.
  int64_t Generate(int64_t index, uint8_t* pixels) const;

  const int64_t size_;
  const uint64_t stream_;  // the key of this split's examples
  // [class][channel][row][column], about -128 .. 127.
  const std::vector<int16_t> patterns_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_SYNTHETIC_H_
