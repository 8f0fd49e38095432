#include "samplers/datasets/tokens.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "samplers/datasets/split_mix.h"

namespace rankwise {
namespace {

// Four different ones for each token.
std::vector<uint8_t> RandomSuccessors(uint64_t key) {
  std::vector<uint8_t> successors;
  SplitMix random(key);
  for (int64_t token = 0; token < Tokens::kVocabulary; ++token) {
    const auto begin = static_cast<std::ptrdiff_t>(successors.size());
    while (static_cast<std::ptrdiff_t>(successors.size()) <
           begin + Tokens::kSuccessors) {
      const auto next = static_cast<uint8_t>(random.Below(Tokens::kVocabulary));
      const auto first = successors.begin() + begin;
      if (std::find(first, successors.end(), next) == successors.end())
        successors.push_back(next);
    }
  }
  return successors;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::Open(uint64_t seed, Split split,
                                                     int64_t size,
                                                     int64_t sequence_length) {
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: the ", SplitName(split), " split is to have ",
                     size, " examples; it must be 0 or more"));
  }
  if (sequence_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: sequences are to have ", sequence_length,
                     " tokens; it must be 1 or more"));
  }
  return absl::WrapUnique(new Tokens(seed, split, size, sequence_length));
}

Tokens::Tokens(uint64_t seed, Split split, int64_t size,
               int64_t sequence_length)
    : size_(size),
      sequence_length_(sequence_length),
      stream_(Mix(Mix(seed) + (split == Split::kTrain ? 1 : 2))),
      successors_(RandomSuccessors(Mix(Mix(seed) + 3))) {}

void Tokens::Generate(int64_t index, int64_t* tokens,
                      int64_t* next_tokens) const {
  // Which successor each of 16 equally likely draws means; the last is noise.
  constexpr int8_t kChoice[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                  1, 1, 1, 1, 2, 2, 3, -1};
  SplitMix random(Mix(stream_ ^ static_cast<uint64_t>(index)));
  uint64_t token = random.Below(kVocabulary);
  for (int64_t t = 0; t < sequence_length_; ++t) {
    tokens[t] = static_cast<int64_t>(token);
    const uint64_t bits = random.Next();
    const int8_t choice = kChoice[bits >> 60];
    token =
        choice < 0
            ? bits % kVocabulary
            : successors_[token * kSuccessors + static_cast<uint64_t>(choice)];
    next_tokens[t] = static_cast<int64_t>(token);
  }
}

Batch Tokens::Gather(absl::Span<const int64_t> indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, sequence_length_}, at::kLong),
              at::empty({count, sequence_length_}, at::kLong)};
  int64_t* tokens = batch.data.mutable_data_ptr<int64_t>();
  int64_t* next_tokens = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_,
                      "tokens: there is no example ", index, "; the size is ",
                      size_);
    Generate(index, tokens, next_tokens);
    tokens += sequence_length_;
    next_tokens += sequence_length_;
  }
  return batch;
}

}  // namespace rankwise
