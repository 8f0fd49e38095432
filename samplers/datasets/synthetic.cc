#include "samplers/datasets/synthetic.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "samplers/datasets/split_mix.h"

namespace rankwise {
namespace {

// Patterns are kGrid x kGrid random values, interpolated to kSide x kSide.
constexpr int64_t kGrid = 4;
constexpr int64_t kCell = Synthetic::kSide / kGrid;
constexpr int64_t kPlane = Synthetic::kSide * Synthetic::kSide;
// In 256ths: the least share of its own class's pattern that an image gets (the
// rest is another class's), the contrast of patterns, and the noise's reach.
constexpr int kLeastShare = 102;
constexpr int kContrast = 102;
constexpr int kNoise = 220;
// Patterns are displaced by 0 .. kDisplacement - 1 rows and columns.
constexpr uint64_t kDisplacement = 6;

// Writes one channel of a pattern, bilinear between grid values that repeat
// beyond the edges.
void WritePlane(SplitMix& random, int16_t* plane) {
  int64_t grid[kGrid][kGrid];
  for (auto& row : grid) {
    for (int64_t& value : row) {
      value = static_cast<int64_t>(random.Below(256)) - 128;
    }
  }
  for (int64_t y = 0; y < Synthetic::kSide; ++y) {
    for (int64_t x = 0; x < Synthetic::kSide; ++x) {
      const int64_t top = y / kCell, down = y % kCell;
      const int64_t left = x / kCell, right = x % kCell;
      const int64_t bottom = (top + 1) % kGrid, end = (left + 1) % kGrid;
      const int64_t sum = (kCell - down) * ((kCell - right) * grid[top][left] +
                                            right * grid[top][end]) +
                          down * ((kCell - right) * grid[bottom][left] +
                                  right * grid[bottom][end]);
      *plane++ = static_cast<int16_t>(sum / (kCell * kCell));
    }
  }
}

std::vector<int16_t> MakePatterns(uint64_t seed) {
  std::vector<int16_t> patterns(Synthetic::kNumClasses * Synthetic::kPixels);
  SplitMix random(Mix(seed));
  for (size_t at = 0; at < patterns.size(); at += kPlane) {
    WritePlane(random, &patterns[at]);
  }
  return patterns;
}

// Adds weight / 256 of a pattern to `image`, displaced cyclically by so many
// rows and columns. |weight| <= 256 keeps all products in 16 bits, which
// doubles the speed.
void AddPattern(const int16_t* pattern, int16_t weight, uint64_t rows,
                uint64_t columns, int16_t* image) {
  constexpr uint64_t kSide = Synthetic::kSide;
  int16_t row[2 * kSide];  // twice over, so that a displaced row is contiguous
  for (int64_t channel = 0; channel < Synthetic::kChannels; ++channel) {
    for (uint64_t y = 0; y < kSide; ++y) {
      const int16_t* from = pattern + (y + rows) % kSide * kSide;
      std::memcpy(row, from, sizeof(row) / 2);
      std::memcpy(row + kSide, from, sizeof(row) / 2);
      for (uint64_t x = 0; x < kSide; ++x) {
        const auto product = static_cast<int16_t>(row[x + columns] * weight);
        image[x] = static_cast<int16_t>(image[x] + (product >> 8));
      }
      image += kSide;
    }
    pattern += kPlane;
  }
}

// pixels = image + 128 + noise, clamped to 0 .. 255.
void AddNoise(SplitMix& random, const int16_t* image, uint8_t* pixels) {
  uint8_t bytes[Synthetic::kPixels];
  for (int64_t at = 0; at < Synthetic::kPixels; at += 8) {
    const uint64_t bits = random.Next();
    for (int i = 0; i < 8; ++i) {
      bytes[at + i] = static_cast<uint8_t>(bits >> (8 * i));
    }
  }
  for (int64_t at = 0; at < Synthetic::kPixels; ++at) {
    const auto noise = static_cast<int16_t>((bytes[at] - 128) * kNoise);
    const auto value = static_cast<int16_t>(image[at] + 128 + (noise >> 8));
    const int16_t floored = value < 0 ? int16_t{0} : value;
    pixels[at] = static_cast<uint8_t>(floored > 255 ? int16_t{255} : floored);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Synthetic>> Synthetic::Open(uint64_t seed,
                                                           Split split,
                                                           int64_t size) {
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("synthetic: the ", SplitName(split), " split is to have ",
                     size, " examples; it must be 0 or more"));
  }
  return absl::WrapUnique(new Synthetic(seed, split, size));
}

Synthetic::Synthetic(uint64_t seed, Split split, int64_t size)
    : size_(size),
      stream_(Mix(Mix(seed) + (split == Split::kTrain ? 1 : 2))),
      patterns_(MakePatterns(seed)) {}

int64_t Synthetic::Generate(int64_t index, uint8_t* pixels) const {
  SplitMix random(Mix(stream_ ^ static_cast<uint64_t>(index)));
  const uint64_t label = random.Below(kNumClasses);
  const uint64_t other =
      (label + 1 + random.Below(kNumClasses - 1)) % kNumClasses;
  const int share =
      kLeastShare + static_cast<int>(random.Below(257 - kLeastShare));
  int16_t image[kPixels] = {};
  for (const auto& [pattern, part] :
       {std::pair(label, share), std::pair(other, 256 - share)}) {
    const uint64_t rows = random.Below(kDisplacement);
    const uint64_t columns = random.Below(kDisplacement);
    AddPattern(&patterns_[pattern * kPixels],
               static_cast<int16_t>(part * kContrast / 256), rows, columns,
               image);
  }
  AddNoise(random, image, pixels);
  return static_cast<int64_t>(label);
}

Batch Synthetic::Gather(absl::Span<const int64_t> indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, kChannels, kSide, kSide}, at::kByte),
              at::empty({count}, at::kLong)};
  uint8_t* pixels = batch.data.mutable_data_ptr<uint8_t>();
  int64_t* labels = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_,
                      "synthetic: there is no example ", index,
                      "; the size is ", size_);
    *labels++ = Generate(index, pixels);
    pixels += kPixels;
  }
  return batch;
}

}  // namespace rankwise
