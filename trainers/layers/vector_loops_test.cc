#include "trainers/layers/vector_loops.h"

#include <gtest/gtest.h>

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
    EXPECT_EQ(FromBf16(bits[0]), 1);
    EXPECT_EQ(FromBf16(bits[1]), 1 + 0x1p-6f);
    EXPECT_EQ(FromBf16(bits[2]), -2.5f);
    EXPECT_EQ(FromBf16(bits[3]), 1 + 0x1p-7f);
    EXPECT_EQ(FromBf16(bits[4]), kInfinity);
    EXPECT_TRUE(std::isnan(FromBf16(bits[5])));
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

// Two rows of values, which do not fill vectors.
constexpr int64_t kRows = 2, kValues = 37;

std::vector<Bf16Bits> Rounded(const std::vector<float>& x) {
  std::vector<Bf16Bits> bits;
  for (const float value : x) bits.push_back(ToBf16(value));
  return bits;
}

std::vector<float> Widened(const std::vector<float>& x) { return x; }
std::vector<float> Widened(const std::vector<Bf16Bits>& x) {
  std::vector<float> wide;
  for (const Bf16Bits value : x) wide.push_back(FromBf16(value));
  return wide;
}

// Numbers that bf16 represents.
std::vector<float> Waves(int64_t n, float frequency) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(2 * std::sin(frequency * static_cast<float>(i + 1)));
  return Widened(Rounded(x));
}

// Expects values within 4e-6 and, in bf16, half a unit in the last place.
template <typename T>
void ExpectNear(const std::vector<T>& values,
                const std::vector<double>& truth) {
  const std::vector<float> wide = Widened(values);
  const double rounding = sizeof(T) == 2 ? 0x1p-8 : 0;
  for (size_t i = 0; i < truth.size(); ++i)
    ASSERT_NEAR(wide[i], truth[i], 4e-6 + rounding * std::abs(truth[i])) << i;
}

template <typename X, typename Y>
void ExpectRmsNorm(const RmsNormLoops<X, Y>& loops, const std::vector<X>& x,
                   const std::vector<Y>& dy) {
  const std::vector<float> weight = Waves(kValues, 0.3f), xs = Widened(x),
                           dys = Widened(dy);
  std::vector<Y> y(x.size());
  std::vector<X> dx(x.size());
  std::vector<float> inverse_rms(kRows), dweight(kValues, 1);
  loops.forward(x.data(), weight.data(), /*epsilon=*/0.5f, kRows, kValues,
                y.data(), inverse_rms.data());
  loops.backward(dy.data(), x.data(), weight.data(), inverse_rms.data(), kRows,
                 kValues, dx.data(), dweight.data());
  std::vector<double> y_truth, dx_truth, dweight_truth(kValues, 1);
  for (size_t row = 0; row < x.size(); row += kValues) {
    double squares = 0, dot = 0;
    for (size_t i = 0; i < kValues; ++i) {
      squares += xs[row + i] * xs[row + i];
      dot += xs[row + i] * weight[i] * dys[row + i];
    }
    const double scale = 1 / std::sqrt(squares / kValues + 0.5);
    EXPECT_NEAR(inverse_rms[row / kValues], scale, 1e-6);
    for (size_t i = 0; i < kValues; ++i) {
      const double value = xs[row + i], gradient = dys[row + i];
      y_truth.push_back(value * scale * weight[i]);
      dx_truth.push_back(scale * (gradient * weight[i] -
                                  value * scale * scale * dot / kValues));
      dweight_truth[i] += gradient * value * scale;
    }
  }
  ExpectNear(y, y_truth);
  ExpectNear(dx, dx_truth);
  ExpectNear(dweight, dweight_truth);
}

TEST(VectorLoopsTest, RmsNormAndItsGradientsOnEveryInstructionSet) {
  const std::vector<float> x = Waves(kRows * kValues, 0.7f),
                           dy = Waves(kRows * kValues, 1.9f);
  for (const auto* loops : LoopsOfThisCpu<float>()) {
    ExpectRmsNorm(loops->rms_norm, x, dy);
    ExpectRmsNorm(loops->rms_norm_of_floats, x, dy);
  }
  for (const auto* loops : LoopsOfThisCpu<Bf16Bits>()) {
    ExpectRmsNorm(loops->rms_norm, Rounded(x), Rounded(dy));
    ExpectRmsNorm(loops->rms_norm_of_floats, x, Rounded(dy));
  }
}

template <typename T>
void ExpectSwiGlu(const VectorLoops<T>& loops, const std::vector<T>& x,
                  const std::vector<T>& dy) {
  const std::vector<float> xs = Widened(x), dys = Widened(dy);
  std::vector<T> y(dy.size()), dx(x.size());
  loops.swiglu(x.data(), kRows, kValues, y.data());
  loops.swiglu_backward(dy.data(), x.data(), kRows, kValues, dx.data());
  std::vector<double> y_truth(y.size()), dx_truth(x.size());
  for (size_t out = 0; out < y.size(); ++out) {
    const size_t at = out + out / kValues * kValues, up_at = at + kValues;
    const double gate = xs[at], up = xs[up_at], gradient = dys[out];
    const double sigmoid = 1 / (1 + std::exp(-gate));
    y_truth[out] = gate * sigmoid * up;
    dx_truth[at] = gradient * up * sigmoid * (1 + gate * (1 - sigmoid));
    dx_truth[up_at] = gradient * gate * sigmoid;
  }
  ExpectNear(y, y_truth);
  ExpectNear(dx, dx_truth);
}

TEST(VectorLoopsTest, SwiGluAndItsGradientOnEveryInstructionSet) {
  const std::vector<float> x = Waves(2 * kRows * kValues, 0.7f),
                           dy = Waves(kRows * kValues, 1.9f);
  for (const auto* loops : LoopsOfThisCpu<float>()) ExpectSwiGlu(*loops, x, dy);
  for (const auto* loops : LoopsOfThisCpu<Bf16Bits>())
    ExpectSwiGlu(*loops, Rounded(x), Rounded(dy));
}

template <typename T>
void ExpectRotated(const VectorLoops<T>& loops, const std::vector<T>& x,
                   float sign) {
  const std::vector<float> xs = Widened(x), cos = Waves(kValues, 0.1f),
                           sin = Waves(kValues, 0.2f);
  std::vector<T> y(x.size());
  loops.rotate(x.data(), cos.data(), sin.data(), sign, /*heads=*/2, kValues,
               y.data());
  std::vector<double> truth(x.size());
  for (size_t pair = 0; pair < x.size() / 2; ++pair) {
    const size_t first = pair + pair / kValues * kValues,
                 second = first + kValues;
    const double cosine = cos[pair % kValues],
                 sine = sign * sin[pair % kValues];
    truth[first] = xs[first] * cosine - xs[second] * sine;
    truth[second] = xs[second] * cosine + xs[first] * sine;
  }
  ExpectNear(y, truth);
}

TEST(VectorLoopsTest, RotatesPairsEitherWayOnEveryInstructionSet) {
  const std::vector<float> x = Waves(2 * 2 * kValues, 0.7f);
  for (const float sign : {1.0f, -1.0f}) {
    for (const auto* loops : LoopsOfThisCpu<float>())
      ExpectRotated(*loops, x, sign);
    for (const auto* loops : LoopsOfThisCpu<Bf16Bits>())
      ExpectRotated(*loops, Rounded(x), sign);
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
