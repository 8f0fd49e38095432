#ifndef RANKWISE_SAMPLERS_DATASETS_TEXT_H_
#define RANKWISE_SAMPLERS_DATASETS_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/mapped_file.h"

namespace rankwise {

// Any file as language-model data: its bytes are the tokens, 0 .. 255. The last
// tenth of the bytes is the test split, what precedes it the train split; each
// is cut into windows of T + 1 bytes that do not overlap (T tokens, and the one
// after each), without the rest that does not fill one.
//
// The file is memory-mapped: ranks on one machine share one copy. It must not
// be cut short while open.
class Text final : public Dataset {
 public:
  static constexpr int64_t kVocabulary = 256;

  // Opens the first `size` windows of `split`, or all if there are fewer.
  // `path` is the file, or a folder in which it is the only one (names that
  // begin with a dot do not count). InvalidArgument: no path, a folder with
  // none or several, a split shorter than a window, an impossible `size` or
  // `sequence_length`. NotFound: nothing is there.
  static absl::StatusOr<std::unique_ptr<Text>> Open(const std::string& path,
                                                    Split split, int64_t size,
                                                    int64_t sequence_length);

  int64_t size() const override { return size_; }
  absl::string_view name() const override { return "text"; }
  std::vector<int64_t> example_shape() const override {
    return {sequence_length_};
  }
  int64_t num_classes() const override { return kVocabulary; }
  // data: int64 [B, T]; target: int64 [B, T], the token after each.
  Batch Gather(absl::Span<const int64_t> indices) const override;

 private:
  Text(MappedFile file, int64_t first_byte, int64_t size,
       int64_t sequence_length);

  const MappedFile file_;
  const int64_t first_byte_;  // of the split
  const int64_t size_;
  const int64_t sequence_length_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_TEXT_H_
