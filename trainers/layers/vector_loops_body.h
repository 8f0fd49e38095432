// Included by vector_loops.cc once per instruction set, in a separate namespace
// and with separate compiler options. So no include guard, and no includes.

inline float ToFloat(float x) { return x; }
inline float ToFloat(Bf16Bits x) { return FromBf16(x); }

inline void Store(float x, float* to) { *to = x; }
inline void Store(float x, Bf16Bits* to) { *to = ToBf16(x); }

// Within 2 units in the last place for x in [-87, 88], clamped outside: x = n
// ln 2 + r, and a polynomial for e^r (Cephes expf, Moshier 1989).
inline float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23
  const float shifted = x * 1.44269504f + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float e = 1.9875691500e-4f;
  e = e * r + 1.3981999507e-3f;
  e = e * r + 8.3334519073e-3f;
  e = e * r + 4.1665795894e-2f;
  e = e * r + 1.6666665459e-1f;
  e = e * r + 5.0000001201e-1f;
  e = e * r * r + r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127) << 23;
  return e * std::bit_cast<float>(exponent);
}

constexpr float kGeluSlope = 0.79788456f, kGeluCube = 0.044715f;

// Returns gelu's 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)).
inline float GeluGate(float x) {
  const float u = kGeluSlope * (x + kGeluCube * x * x * x);
  return 1.0f / (1.0f + Exp(-2.0f * u));
}

template <typename T>
void Gelu(const T* x, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float value = ToFloat(x[i]);
    Store(value * GeluGate(value), &y[i]);
  }
}

template <typename T>
void GeluBackward(const T* dy, const T* x, T* dx, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float value = ToFloat(x[i]);
    const float gate = GeluGate(value);
    const float slope =
        2.0f * kGeluSlope * (1.0f + 3.0f * kGeluCube * value * value);
    Store(ToFloat(dy[i]) * gate * (1.0f + value * (1.0f - gate) * slope),
          &dx[i]);
  }
}

template <typename T>
void SoftmaxRow(const ScoreTile& tile, int64_t visible, float* scores,
                T* weights, float* log_sum_exp) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < visible; ++i)
    largest = scores[i] > largest ? scores[i] : largest;
  largest *= tile.scale;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < visible; ++i) {
    scores[i] = Exp(scores[i] * tile.scale - largest);
    sum += scores[i];
  }
  const float share = 1.0f / sum;
#pragma omp simd
  for (int64_t i = 0; i < visible; ++i) Store(scores[i] * share, &weights[i]);
  std::memset(weights + visible, 0,
              static_cast<size_t>(tile.padded_columns - visible) * sizeof(T));
  *log_sum_exp = largest + std::log(sum);
}

template <typename T>
void Softmax(const ScoreTile& tile, int64_t visible, int64_t more_visible,
             float* scores, T* weights, float* log_sum_exps) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    SoftmaxRow(tile, visible + row * more_visible, scores + row * tile.stride,
               weights + row * tile.out_stride, &log_sum_exps[row]);
  }
}

template <typename T>
void SoftmaxBackward(const ScoreTile& tile, int64_t more_hidden,
                     const float* scores, const float* weight_gradients,
                     const float* log_sum_exps, const float* dots, T* weights,
                     T* score_gradients) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float* s = scores + row * tile.stride;
    const float* dw = weight_gradients + row * tile.stride;
    T* const w = weights + row * tile.out_stride;
    T* const ds = score_gradients + row * tile.out_stride;
    const int64_t first = row * more_hidden;
    std::memset(w, 0, static_cast<size_t>(first) * sizeof(T));
    std::memset(ds, 0, static_cast<size_t>(first) * sizeof(T));
#pragma omp simd
    for (int64_t i = first; i < tile.columns; ++i) {
      const float weight = Exp(s[i] * tile.scale - log_sum_exps[i]);
      const float gradient = weight * (dw[i] - dots[i]) * tile.scale;
      Store(weight, &w[i]);
      Store(gradient, &ds[i]);
    }
    const auto padding =
        static_cast<size_t>(tile.padded_columns - tile.columns) * sizeof(T);
    std::memset(w + tile.columns, 0, padding);
    std::memset(ds + tile.columns, 0, padding);
  }
}

template <typename T>
void RowDots(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
             int64_t rows, int64_t columns, float* dots) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x = a + row * a_stride;
    const T* const y = b + row * b_stride;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < columns; ++i) sum += ToFloat(x[i]) * ToFloat(y[i]);
    dots[row] = sum;
  }
}

template <typename T>
void CopyRows(const float* from, int64_t from_stride, int64_t rows,
              int64_t columns, T* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i)
      Store(from[row * from_stride + i], &to[row * to_stride + i]);
  }
}

template <typename X, typename Y>
void RmsNorm(const X* x, const float* weight, float epsilon, int64_t rows,
             int64_t n, Y* y, float* inverse_rms) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += ToFloat(x[i]) * ToFloat(x[i]);
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      Store(ToFloat(x[i]) * scale * weight[i], &y[i]);
    inverse_rms[row] = scale;
  }
}

template <typename X, typename Y>
void RmsNormBackward(const Y* dy, const X* x, const float* weight,
                     const float* inverse_rms, int64_t rows, int64_t n, X* dx,
                     float* dweight) {
  for (int64_t row = 0; row < rows; ++row, dy += n, x += n, dx += n) {
    const float scale = inverse_rms[row];
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; ++i) {
      const float product = ToFloat(dy[i]) * ToFloat(x[i]) * scale;
      dweight[i] += product;
      dot += product * weight[i];
    }
    const float mean = dot / static_cast<float>(n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float normalised = ToFloat(x[i]) * scale;
      Store(scale * (ToFloat(dy[i]) * weight[i] - normalised * mean), &dx[i]);
    }
  }
}

template <typename T>
void SwiGlu(const T* x, int64_t rows, int64_t n, T* y) {
  for (int64_t row = 0; row < rows; ++row, x += 2 * n, y += n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float gate = ToFloat(x[i]);
      Store(gate / (1.0f + Exp(-gate)) * ToFloat(x[n + i]), &y[i]);
    }
  }
}

template <typename T>
void SwiGluBackward(const T* dy, const T* x, int64_t rows, int64_t n, T* dx) {
  for (int64_t row = 0; row < rows; ++row, dy += n, x += 2 * n, dx += 2 * n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float gate = ToFloat(x[i]), gradient = ToFloat(dy[i]);
      const float sigmoid = 1.0f / (1.0f + Exp(-gate));
      const float slope = sigmoid * (1.0f + gate * (1.0f - sigmoid));
      Store(gradient * ToFloat(x[n + i]) * slope, &dx[i]);
      Store(gradient * gate * sigmoid, &dx[n + i]);
    }
  }
}

template <typename T>
void Rotate(const T* x, const float* cos, const float* sin, float sign,
            int64_t heads, int64_t pairs, T* y) {
  for (int64_t head = 0; head < heads; ++head, x += 2 * pairs, y += 2 * pairs) {
#pragma omp simd
    for (int64_t i = 0; i < pairs; ++i) {
      const float first = ToFloat(x[i]), second = ToFloat(x[pairs + i]);
      const float sine = sign * sin[i];
      Store(first * cos[i] - second * sine, &y[i]);
      Store(second * cos[i] + first * sine, &y[pairs + i]);
    }
  }
}

template <typename T>
constexpr VectorLoops<T> kLoops = {
    Gelu<T>,
    GeluBackward<T>,
    Softmax<T>,
    SoftmaxBackward<T>,
    RowDots<T>,
    CopyRows<T>,
    {RmsNorm<T, T>, RmsNormBackward<T, T>},
    {RmsNorm<float, T>, RmsNormBackward<float, T>},
    SwiGlu<T>,
    SwiGluBackward<T>,
    Rotate<T>};
