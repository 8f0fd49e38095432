#include "trainers/layers/vector_loops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace rankwise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double TanhGelu(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

double Slope(double x) {
  const double step = 1e-5;
  return (TanhGelu(x + step) - TanhGelu(x - step)) / (2 * step);
}

// From -12 to 12; the last ones do not fill a vector.
std::vector<float> Numbers() {
  std::vector<float> numbers;
  for (float x = -12; x <= 12; x += 0.037f) numbers.push_back(x);
  return numbers;
}

float Widen(Bf16Bits x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

TEST(VectorLoopsTest, GeluAndItsSlopeAreThoseOfTanhOnEveryInstructionSet) {
  const std::vector<float> x = Numbers();
  const std::vector<float> ones(x.size(), 1);
  for (const VectorLoops<float>* loops : LoopsOfThisCpu<float>()) {
    std::vector<float> y(x.size()), dx(x.size());
    loops->gelu(x.data(), y.data(), static_cast<int64_t>(x.size()));
    loops->gelu_backward(ones.data(), x.data(), dx.data(),
                         static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], TanhGelu(x[i]), 1e-6) << x[i];
      ASSERT_NEAR(dx[i], Slope(x[i]), 2e-6) << x[i];
    }
  }
}

TEST(VectorLoopsTest, Bf16RoundsToTheNearestOnEveryInstructionSet) {
  // 1 + 2^-8 is between two neighbours, of which 1 is the even one.
  const std::vector<float> wide = {1 + 0x1p-8f, 1 + 0x1.8p-7f,
                                   -2.5f,       1 + 0x1p-8f + 0x1p-20f,
                                   kInfinity,   NAN};
  for (const VectorLoops<Bf16Bits>* loops : LoopsOfThisCpu<Bf16Bits>()) {
    std::vector<Bf16Bits> bits(wide.size());
    loops->copy_rows(wide.data(), 0, 1, static_cast<int64_t>(wide.size()),
                     bits.data(), 0);
    EXPECT_EQ(Widen(bits[0]), 1);
    EXPECT_EQ(Widen(bits[1]), 1 + 0x1p-6f);
    EXPECT_EQ(Widen(bits[2]), -2.5f);
    EXPECT_EQ(Widen(bits[3]), 1 + 0x1p-7f);
    EXPECT_EQ(Widen(bits[4]), kInfinity);
    EXPECT_TRUE(std::isnan(Widen(bits[5])));
  }
}

TEST(VectorLoopsTest, GeluHandsOnWhatIsNotFinite) {
  const float x[] = {NAN, kInfinity, -1e30f};
  for (const VectorLoops<float>* loops : LoopsOfThisCpu<float>()) {
    float y[3];
    loops->gelu(x, y, 3);
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_NEAR(y[2], 0, 1e-6);
  }
}

TEST(VectorLoopsTest, SoftmaxOfWhatIsVisibleAndZerosAfterIt) {
  constexpr int64_t kColumns = 37, kPadded = 38;
  const ScoreTile tile = {2, kColumns, kColumns, kPadded, kPadded, 0.5f};
  for (const VectorLoops<float>* loops : LoopsOfThisCpu<float>()) {
    std::vector<float> scores;
    for (int64_t i = 0; i < 2 * kColumns; ++i)
      scores.push_back(80 * std::sin(static_cast<float>(i)));
    const std::vector<float> before = scores;
    std::vector<float> weights(2 * kPadded, -1);
    float log_sum_exps[2];
    loops->softmax(tile, /*visible=*/20, /*more_visible=*/1, scores.data(),
                   weights.data(), log_sum_exps);
    for (int64_t row = 0; row < 2; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < 20 + row; ++i)
        sum += std::exp(0.5 * before[row * kColumns + i]);
      EXPECT_NEAR(log_sum_exps[row], std::log(sum), 1e-5);
      for (int64_t i = 0; i < kPadded; ++i) {
        const double expected =
            i < 20 + row ? std::exp(0.5 * before[row * kColumns + i]) / sum : 0;
        EXPECT_NEAR(weights[row * kPadded + i], expected, 1e-6);
      }
    }
  }
}

TEST(VectorLoopsTest, GradientsOfScoresAreThoseOfSoftmax) {
  // Two keys, three queries, of which the first does not see the second key.
  const ScoreTile tile = {2, 3, 3, 4, 4, 0.5f};
  const float scores[] = {1, -2, 3, 0, 4, -1};
  const float weight_gradients[] = {0.5f, -1, 2, 0, 3, 1};
  const float log_sum_exps[] = {0.5f, 2.5f, 2}, dots[] = {0.25f, 1, -1};
  for (const VectorLoops<float>* loops : LoopsOfThisCpu<float>()) {
    std::vector<float> weights(8, 9), gradients(8, 9);
    loops->softmax_backward(tile, /*more_hidden=*/1, scores, weight_gradients,
                            log_sum_exps, dots, weights.data(),
                            gradients.data());
    for (int64_t key = 0; key < 2; ++key) {
      for (int64_t query = 0; query < 4; ++query) {
        const bool seen = query >= key && query < 3;
        const int64_t i = 3 * key + query;
        const double weight =
            seen ? std::exp(0.5 * scores[i] - log_sum_exps[query]) : 0;
        EXPECT_NEAR(weights[4 * key + query], weight, 1e-6);
        EXPECT_NEAR(
            gradients[4 * key + query],
            seen ? weight * (weight_gradients[i] - dots[query]) * 0.5 : 0,
            1e-6);
      }
    }
  }
}

TEST(VectorLoopsTest, PairsOfRowsAreSideBySideAndAMissingOneIsZero) {
  const std::vector<Bf16Bits> rows = {1, 2, 0, 3, 4, 0, 5, 6, 0};
  std::vector<Bf16Bits> pairs(8, 9);
  PairRows(rows.data(), /*stride=*/3, /*rows=*/3, /*columns=*/2, pairs.data(),
           /*to_stride=*/4);
  EXPECT_EQ(pairs, (std::vector<Bf16Bits>{1, 3, 2, 4, 5, 0, 6, 0}));
}

}  // namespace
}  // namespace rankwise
