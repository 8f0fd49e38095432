#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/split_mix.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {
namespace {

// Returns the key of a split's examples, the only difference between splits.
uint64_t StreamOf(const DatasetConfig& config, Split split) {
  return Mix(Mix(config.seed) + (split == Split::kTrain ? 1 : 2));
}

// Shape of synthetic images, [kChannels][kSide][kSide].
constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kPixels = kChannels * kSide * kSide;
constexpr int64_t kNumClasses = 10;
// Patterns are kGrid x kGrid random values, interpolated to kSide x kSide.
constexpr int64_t kGrid = 4;
constexpr int64_t kCell = kSide / kGrid;
constexpr int64_t kPlane = kSide * kSide;
// In 256ths: the smallest share of its own class's pattern in an image (the
// rest is another class's), the contrast of patterns, the noise's range.
constexpr int kLeastShare = 102;
constexpr int kContrast = 102;
constexpr int kPixelNoise = 220;
// Patterns are displaced by 0 .. kDisplacement - 1 rows and columns.
constexpr uint64_t kDisplacement = 6;

// Writes one channel of a pattern by bilinear interpolation of a periodic grid.
void WritePlane(SplitMix& random, int16_t* plane) {
  int64_t grid[kGrid][kGrid];
  for (auto& row : grid) {
    for (int64_t& value : row)
      value = static_cast<int64_t>(random.Below(256)) - 128;
  }
  for (int64_t y = 0; y < kSide; ++y) {
    for (int64_t x = 0; x < kSide; ++x) {
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
  std::vector<int16_t> patterns(kNumClasses * kPixels);
  SplitMix random(Mix(seed));
  for (size_t at = 0; at < patterns.size(); at += kPlane)
    WritePlane(random, &patterns[at]);
  return patterns;
}

// Adds weight / 256 of a pattern to `image`, displaced cyclically by `rows` and
// `columns`. |weight| <= 256 keeps all products in 16 bits, which doubles the
// speed.
void AddPattern(const int16_t* pattern, int16_t weight, int64_t rows,
                int64_t columns, int16_t* image) {
  int16_t row[2 * kSide];  // doubled, so that a displaced row is contiguous
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    for (int64_t y = 0; y < kSide; ++y) {
      const int16_t* from = pattern + (y + rows) % kSide * kSide;
      std::memcpy(row, from, sizeof(row) / 2);
      std::memcpy(row + kSide, from, sizeof(row) / 2);
      for (int64_t x = 0; x < kSide; ++x) {
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
  uint8_t bytes[kPixels];
  for (int64_t at = 0; at < kPixels; at += 8) {
    const uint64_t bits = random.Next();
    for (int i = 0; i < 8; ++i) {
      bytes[at + i] = static_cast<uint8_t>(bits >> (8 * i));
    }
  }
  for (int64_t at = 0; at < kPixels; ++at) {
    const auto noise = static_cast<int16_t>((bytes[at] - 128) * kPixelNoise);
    const auto value = static_cast<int16_t>(image[at] + 128 + (noise >> 8));
    const int16_t floored = value < 0 ? int16_t{0} : value;
    pixels[at] = static_cast<uint8_t>(floored > 255 ? int16_t{255} : floored);
  }
}

// The composition of an example of a class.
struct Mixture {
  uint64_t label = 0, other = 0;  // classes
  int share = 0;                  // of the label's pattern, in 256ths

  static Mixture Draw(SplitMix& random, uint64_t num_classes) {
    Mixture mixture;
    mixture.label = random.Below(num_classes);
    mixture.other =
        (mixture.label + 1 + random.Below(num_classes - 1)) % num_classes;
    mixture.share =
        kLeastShare + static_cast<int>(random.Below(257 - kLeastShare));
    return mixture;
  }
};

struct SyntheticImages {
  uint64_t stream = 0;
  // [class][channel][row][column], about -128 .. 127.
  std::vector<int16_t> patterns;

  void operator()(int64_t index, uint8_t* pixels, int64_t* target) const {
    SplitMix random(Mix(stream ^ static_cast<uint64_t>(index)));
    const auto [label, other, share] = Mixture::Draw(random, kNumClasses);
    int16_t image[kPixels] = {};
    for (const auto& [pattern, part] :
         {std::pair(label, share), std::pair(other, 256 - share)}) {
      const auto rows = static_cast<int64_t>(random.Below(kDisplacement));
      const auto columns = static_cast<int64_t>(random.Below(kDisplacement));
      AddPattern(&patterns[pattern * kPixels],
                 static_cast<int16_t>(part * kContrast / 256), rows, columns,
                 image);
    }
    AddNoise(random, image, pixels);
    *target = static_cast<int64_t>(label);
  }
};

// The patterns of vector classes may be many and long, so they are not stored
// but generated again for every example.
struct SyntheticVectors {
  uint64_t stream = 0;
  uint64_t patterns = 0;  // seed of the patterns
  int64_t features = 0;
  uint64_t num_classes = 0;

  static constexpr float kScale = 1.0f / 64;  // of a signed byte
  // Number of features per block, fixed so that loops compile to vector
  // instructions.
  static constexpr int64_t kBlock = 64;

  static void WriteBytes(SplitMix& random, uint8_t* bytes) {
    for (int64_t at = 0; at < kBlock; at += 8) {
      const uint64_t bits = random.Next();
      std::memcpy(bytes + at, &bits, sizeof(bits));
    }
  }

  void operator()(int64_t index, float* vector, int64_t* target) const {
    SplitMix random(Mix(stream ^ static_cast<uint64_t>(index)));
    const auto [label, other, share] = Mixture::Draw(random, num_classes);
    SplitMix own(MixIn(patterns, label)), mixed(MixIn(patterns, other));
    for (int64_t begin = 0; begin < features; begin += kBlock) {
      uint8_t of_own[kBlock], of_mixed[kBlock], noise[kBlock];
      WriteBytes(own, of_own);
      WriteBytes(mixed, of_mixed);
      WriteBytes(random, noise);
      float block[kBlock];
      for (int64_t i = 0; i < kBlock; ++i) {
        const int pattern =
            (share * (of_own[i] - 128) + (256 - share) * (of_mixed[i] - 128)) >>
            8;
        block[i] = static_cast<float>((pattern + noise[i] - 128) >> 1) * kScale;
      }
      std::copy_n(block, std::min(kBlock, features - begin), vector + begin);
    }
    *target = static_cast<int64_t>(label);
  }
};

// Constants of OpenLinearRegression.
constexpr int64_t kLinearFeatures = 10;
constexpr float kLinearNoise = 0.1f;

// Constants of OpenRegression.
constexpr int64_t kFeatures = 1024;
constexpr int64_t kRank = 8;
// Powers of two, so that the conversion to floating point is exact.
constexpr float kFeatureScale = 1.0f / 64;
constexpr float kTargetScale = 1.0f / 8192;
constexpr int32_t kByteNoise = 8;  // kTargetScale per unit of a byte

std::vector<int16_t> RandomSigns(uint64_t key) {
  std::vector<int16_t> signs(kRank * kFeatures);
  SplitMix random(key);
  for (int16_t& sign : signs)
    sign = static_cast<int16_t>(1 - 2 * static_cast<int>(random.Below(2)));
  return signs;
}

// Writes kFeatures values, uniform over -128 .. 127.
void RandomBytes(SplitMix& random, int16_t* values) {
  for (int64_t i = 0; i < kFeatures; i += 8) {
    const uint64_t bits = random.Next();
    for (int j = 0; j < 8; ++j) {
      values[i + j] = static_cast<int16_t>(((bits >> (8 * j)) & 255) - 128);
    }
  }
}

struct RegressionExamples {
  uint64_t stream = 0;
  std::vector<int16_t> encoder;  // V, [kRank][kFeatures]
  std::vector<int16_t> decoder;  // U transposed, [kRank][kFeatures]

  void operator()(int64_t index, float* features, float* targets) const {
    SplitMix random(Mix(stream ^ static_cast<uint64_t>(index)));
    int16_t x[kFeatures], noise[kFeatures];
    RandomBytes(random, x);
    RandomBytes(random, noise);
    int32_t sums[kFeatures];
    for (int64_t i = 0; i < kFeatures; ++i) {
      features[i] = static_cast<float>(x[i]) * kFeatureScale;
      sums[i] = kByteNoise * noise[i];
    }
    for (int64_t r = 0; r < kRank; ++r) {
      const int16_t* encode = &encoder[r * kFeatures];
      const int16_t* decode = &decoder[r * kFeatures];
      int32_t hidden = 0;
      for (int64_t i = 0; i < kFeatures; ++i) hidden += encode[i] * x[i];
      for (int64_t i = 0; i < kFeatures; ++i) sums[i] += decode[i] * hidden;
    }
    for (int64_t i = 0; i < kFeatures; ++i)
      targets[i] = static_cast<float>(sums[i]) * kTargetScale;
  }
};

// Constants of OpenTokens.
constexpr int64_t kVocabulary = 256;
constexpr int64_t kSuccessors = 4;

// Returns four distinct successors for each token.
std::vector<uint8_t> RandomSuccessors(uint64_t key) {
  std::vector<uint8_t> successors;
  SplitMix random(key);
  for (int64_t token = 0; token < kVocabulary; ++token) {
    const size_t begin = successors.size();
    while (successors.size() < begin + kSuccessors) {
      const auto next = static_cast<uint8_t>(random.Below(kVocabulary));
      const auto chosen = absl::MakeConstSpan(successors).subspan(begin);
      if (!absl::c_linear_search(chosen, next)) successors.push_back(next);
    }
  }
  return successors;
}

struct TokenSequences {
  uint64_t stream = 0;
  int64_t sequence_length = 0;
  std::vector<uint8_t> successors;  // [kVocabulary][kSuccessors]

  void operator()(int64_t index, int64_t* tokens, int64_t* next_tokens) const {
    // The successor for each of 16 equally likely draws; the last is noise.
    constexpr int8_t kChoice[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                    1, 1, 1, 1, 2, 2, 3, -1};
    SplitMix random(Mix(stream ^ static_cast<uint64_t>(index)));
    uint64_t token = random.Below(kVocabulary);
    for (int64_t t = 0; t < sequence_length; ++t) {
      tokens[t] = static_cast<int64_t>(token);
      const uint64_t bits = random.Next();
      const int8_t choice = kChoice[bits >> 60];
      token =
          choice < 0
              ? bits % kVocabulary
              : successors[token * kSuccessors + static_cast<uint64_t>(choice)];
      next_tokens[t] = static_cast<int64_t>(token);
    }
  }
};

}  // namespace

DatasetOr OpenSynthetic(const DatasetConfig& config, Split split) {
  if (config.features > 0) {
    if (config.num_classes < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("--classes=", config.num_classes,
                       ": --dataset=synthetic needs two classes or more"));
    }
    return std::make_unique<WrittenDataset<float, int64_t>>(
        DatasetFacts{.name = "synthetic",
                     .size = config.size(split),
                     .example_shape = {config.features},
                     .num_classes = config.num_classes},
        SyntheticVectors{StreamOf(config, split), Mix(Mix(config.seed) + 5),
                         config.features,
                         static_cast<uint64_t>(config.num_classes)});
  }
  return std::make_unique<WrittenDataset<uint8_t, int64_t>>(
      DatasetFacts{.name = "synthetic",
                   .size = config.size(split),
                   .example_shape = {kChannels, kSide, kSide},
                   .num_classes = kNumClasses},
      SyntheticImages{StreamOf(config, split), MakePatterns(config.seed)});
}

DatasetOr OpenLinearRegression(const DatasetConfig& config, Split split) {
  const int64_t size = config.size(split);
  // The seed's three streams: the weights, and the examples of either split.
  const at::Generator of_weights = SeededGenerator(3 * config.seed);
  const at::Generator of_examples =
      SeededGenerator(3 * config.seed + (split == Split::kTrain ? 1 : 2));
  const at::Tensor weights = at::randn({kLinearFeatures + 1}, of_weights);
  at::Tensor features = at::randn({size, kLinearFeatures}, of_examples);
  // At first the noise only.
  at::Tensor targets = at::randn({size, 1}, of_examples);
  const float* weight = weights.const_data_ptr<float>();
  const float* feature = features.const_data_ptr<float>();
  float* target = targets.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) {
    const float bias = weight[kLinearFeatures];
    target[i] = std::inner_product(weight, weight + kLinearFeatures, feature,
                                   bias + kLinearNoise * target[i]);
    feature += kLinearFeatures;
  }
  return std::make_unique<WrittenDataset<float, float>>(
      DatasetFacts{.name = "linear",
                   .size = size,
                   .example_shape = {kLinearFeatures},
                   .target_shape = {1}},
      [features, targets](int64_t index, float* data, float* label) {
        const float* from = features.const_data_ptr<float>();
        std::copy_n(from + index * kLinearFeatures, kLinearFeatures, data);
        *label = targets.const_data_ptr<float>()[index];
      });
}

DatasetOr OpenRegression(const DatasetConfig& config, Split split) {
  return std::make_unique<WrittenDataset<float, float>>(
      DatasetFacts{.name = "regression",
                   .size = config.size(split),
                   .example_shape = {kFeatures},
                   .target_shape = {kFeatures}},
      RegressionExamples{StreamOf(config, split),
                         RandomSigns(Mix(Mix(config.seed) + 3)),
                         RandomSigns(Mix(Mix(config.seed) + 4))});
}

DatasetOr OpenTokens(const DatasetConfig& config, Split split) {
  const int64_t sequence_length = config.sequence_length;
  return std::make_unique<WrittenDataset<int64_t, int64_t>>(
      DatasetFacts{.name = "tokens",
                   .size = config.size(split),
                   .example_shape = {sequence_length},
                   .target_shape = {sequence_length},
                   .num_classes = kVocabulary},
      TokenSequences{StreamOf(config, split), sequence_length,
                     RandomSuccessors(Mix(Mix(config.seed) + 3))});
}

}  // namespace rankwise
