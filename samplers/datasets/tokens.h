#ifndef RANKWISE_SAMPLERS_DATASETS_TOKENS_H_
#define RANKWISE_SAMPLERS_DATASETS_TOKENS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {

// Sequences of a random Markov chain over 256 tokens, for language models:
// after each token one of four follows, with probabilities 1/2, 1/4, 1/8 and
// 1/16, or else any token at all. The first token is any. A model that knows
// nothing has a loss of 5.55 (ln 256), one that knows the chain 1.64.
//
// A sequence is a function of (seed, split, index) in integer arithmetic: the
// same on every machine, and made when it is asked for. Both splits share the
// chain.
class Tokens final : public Dataset {
 public:
  static constexpr int64_t kVocabulary = 256;
  static constexpr int64_t kSuccessors = 4;

  // InvalidArgument when `size` is negative or `sequence_length` below 1.
  static absl::StatusOr<std::unique_ptr<Tokens>> Open(uint64_t seed,
                                                      Split split, int64_t size,
                                                      int64_t sequence_length);

  int64_t size() const override { return size_; }
  absl::string_view name() const override { return "tokens"; }
  std::vector<int64_t> example_shape() const override {
    return {sequence_length_};
  }
  int64_t num_classes() const override { return kVocabulary; }
  // data: int64 [B, T]; target: int64 [B, T], the token after each.
  Batch Gather(absl::Span<const int64_t> indices) const override;

 private:
  Tokens(uint64_t seed, Split split, int64_t size, int64_t sequence_length);

  void Generate(int64_t index, int64_t* tokens, int64_t* next_tokens) const;

  const int64_t size_;
  const int64_t sequence_length_;
  const uint64_t stream_;                  // the key of this split's examples
  const std::vector<uint8_t> successors_;  // [kVocabulary][kSuccessors]
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_TOKENS_H_
