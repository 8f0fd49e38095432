#include "trainers/layers/attention.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "parallel/autograd/autocast.h"
#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/values.h"
#include "trainers/layers/vector_loops.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a tile: few, so that a causal tile computes few hidden scores, but
// more for long sequences, as each of their tiles has its own compiled product.
constexpr int64_t kFewestTileRows = 32, kMostTileRows = 128;
constexpr int64_t kTilesOfSequence = 8;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Shape {
  Shape(const torch::Tensor& qkv, int64_t number_of_heads,
        int64_t number_of_kv_heads, bool is_causal)
      : examples(qkv.size(0)),
        tokens(qkv.size(1)),
        heads(number_of_heads),
        kv_heads(number_of_kv_heads),
        features(qkv.size(2) / (heads + 2 * kv_heads)),
        causal(is_causal) {}

  // Query heads of a key-value head.
  int64_t group() const { return heads / kv_heads; }
  int64_t out_width() const { return heads * features; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * features; }
  int64_t tile_rows() const {
    return std::clamp(RoundUp(tokens / kTilesOfSequence, kFewestTileRows),
                      kFewestTileRows, kMostTileRows);
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(features)); }

  const int64_t examples, tokens, heads, kv_heads;
  const int64_t features;  // of a head
  const bool causal;
};

// A matrix whose row i begins at data + i * stride.
template <typename T>
struct Matrix {
  Matrix From(int64_t row, int64_t column = 0) const {
    return {data + row * stride + column, stride};
  }
  operator Matrix<const T>() const { return {data, stride}; }

  T* data;
  int64_t stride;
};

// Rows of a product's right side that are read at once: bf16 dot products read
// two rows, value by value.
template <typename T>
constexpr int64_t kRowsAtOnce = std::is_same_v<T, Bf16Bits> ? 2 : 1;

// The right side of a product: a matrix with kRowsAtOnce rows interleaved.
template <typename T>
struct Right {
  // `row` must be a multiple of kRowsAtOnce.
  Right FromRow(int64_t row) const {
    return {data + row / kRowsAtOnce<T> * stride, stride};
  }
  Right FromColumn(int64_t column) const {
    return {data + column * kRowsAtOnce<T>, stride};
  }

  const T* data;
  int64_t stride;
};

struct ProductSize {
  int64_t rows, columns;
  int64_t inner;  // for bf16 a multiple of 2
};

// Computes c = a b, or c += a b.
void Product(const ProductSize& size, const Matrix<const float>& a,
             const Right<float>& b, const Matrix<float>& c, bool add = false) {
  at::native::cpublas::brgemm(size.rows, size.columns, size.inner, a.stride,
                              b.stride, c.stride, add, a.data, b.data, c.data,
                              /*is_vnni=*/false);
}
void Product(const ProductSize& size, const Matrix<const Bf16Bits>& a,
             const Right<Bf16Bits>& b, const Matrix<float>& c,
             bool add = false) {
  at::native::cpublas::brgemm(size.rows, size.columns, size.inner, a.stride,
                              b.stride / kRowsAtOnce<Bf16Bits>, c.stride, add,
                              reinterpret_cast<const c10::BFloat16*>(a.data),
                              reinterpret_cast<const c10::BFloat16*>(b.data),
                              c.data,
                              /*is_vnni=*/true);
}

// Rounds the result to bf16, by way of `wide`.
void Product(const ProductSize& size, const Matrix<const Bf16Bits>& a,
             const Right<Bf16Bits>& b, const Matrix<Bf16Bits>& c,
             const Matrix<float>& wide) {
  Product(size, a, b, wide);
  BestLoops<Bf16Bits>().copy_rows(wide.data, wide.stride, size.rows,
                                  size.columns, c.data, c.stride);
}
void Product(const ProductSize& size, const Matrix<const float>& a,
             const Right<float>& b, const Matrix<float>& c,
             const Matrix<float>&) {
  Product(size, a, b, c);
}

// Transposes [rows, columns] to [columns, rows].
template <typename T>
void Transpose(int64_t rows, int64_t columns, const Matrix<const T>& from,
               const Matrix<T>& to) {
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row)
      to.data[column * to.stride + row] = from.data[row * from.stride + column];
  }
}

// Returns x [rows, columns] as a right side. `memory`, of the same size, is
// used if it must be copied.
Right<float> AsRight(int64_t, int64_t, const Matrix<const float>& x,
                     const Matrix<float>&) {
  return {x.data, x.stride};
}
Right<Bf16Bits> AsRight(int64_t rows, int64_t columns,
                        const Matrix<const Bf16Bits>& x,
                        const Matrix<Bf16Bits>& memory) {
  const int64_t stride = columns * kRowsAtOnce<Bf16Bits>;
  PairRows(x.data, x.stride, rows, columns, memory.data, stride);
  return {memory.data, stride};
}

// Returns x^T as a right side.
Right<float> TransposedAsRight(int64_t rows, int64_t columns,
                               const Matrix<const float>& x,
                               const Matrix<float>& memory) {
  Transpose(rows, columns, x, {memory.data, rows});
  return {memory.data, rows};
}
// Pairs of columns of x become pairs of rows.
Right<Bf16Bits> TransposedAsRight(int64_t rows, int64_t columns,
                                  const Matrix<const Bf16Bits>& x,
                                  const Matrix<Bf16Bits>& memory) {
  Transpose<uint32_t>(rows, columns / 2,
                      {reinterpret_cast<const uint32_t*>(x.data), x.stride / 2},
                      {reinterpret_cast<uint32_t*>(memory.data), rows});
  return {memory.data, 2 * rows};
}

// The queries of one head and the keys and values of its group, or their
// gradients, in [B, tokens, (heads + 2 * kv_heads) * features]. `head` counts
// the query heads of all examples.
template <typename T>
struct Qkv {
  Qkv(const torch::Tensor& x, const Shape& shape, int64_t head) {
    const int64_t width = shape.qkv_width();
    T* const first = Values<T>(x) + head / shape.heads * shape.tokens * width;
    const int64_t query_head = head % shape.heads;
    const int64_t key_head = shape.heads + query_head / shape.group();
    q = {first + query_head * shape.features, width};
    k = {first + key_head * shape.features, width};
    v = {first + (key_head + shape.kv_heads) * shape.features, width};
  }

  Matrix<T> q = {}, k = {}, v = {};
};

// Returns one head of [B, tokens, heads * features].
template <typename T>
Matrix<T> HeadOf(const torch::Tensor& x, const Shape& shape, int64_t head) {
  const int64_t width = shape.out_width();
  return {Values<T>(x) + head / shape.heads * shape.tokens * width +
              head % shape.heads * shape.features,
          width};
}

// Memory of one thread, reused for its heads.
template <typename T>
class Scratch {
 public:
  explicit Scratch(const Shape& shape)
      : shape_(shape), tokens_(RoundUp(shape.tokens, kRowsAtOnce<T>)) {}

  Matrix<T> OfTokens() { return {Take<T>(tokens_ * shape_.features), 0}; }
  Matrix<float> WideTokens() {
    return {Take<float>(tokens_ * shape_.features), shape_.features};
  }
  // [features, tokens]
  template <typename U>
  Matrix<U> Transposed() {
    return {Take<U>(tokens_ * shape_.features), tokens_};
  }
  template <typename U>
  Matrix<U> Tile() {
    return {Take<U>(RoundUp(shape_.tile_rows(), 2) * tokens_), tokens_};
  }
  float* Row() { return Take<float>(tokens_); }

 private:
  template <typename U>
  U* Take(int64_t values) {
    memory_.push_back(at::empty({values * static_cast<int64_t>(sizeof(U))},
                                at::TensorOptions(at::kByte)));
    return Values<U>(memory_.back());
  }

  const Shape shape_;
  const int64_t tokens_;
  std::vector<torch::Tensor> memory_;
};

template <typename T>
class GroupForward {
 public:
  explicit GroupForward(const Shape& shape)
      : shape_(shape),
        scratch_(shape),
        scratch_keys_(scratch_.OfTokens()),
        scratch_values_(scratch_.OfTokens()),
        scores_(scratch_.template Tile<float>()),
        weights_(scratch_.template Tile<T>()),
        wide_(scratch_.WideTokens()) {}

  // Prepares the keys and values of a group.
  void Start(const Qkv<T>& in) {
    keys_ =
        TransposedAsRight(shape_.tokens, shape_.features, in.k, scratch_keys_);
    values_ = AsRight(shape_.tokens, shape_.features, in.v, scratch_values_);
  }

  // Runs one head of the group.
  void Run(const Qkv<T>& in, const Matrix<T>& out, float* log_sum_exps) {
    const int64_t tokens = shape_.tokens, features = shape_.features;
    for (int64_t row = 0; row < tokens; row += shape_.tile_rows()) {
      const int64_t rows = std::min(shape_.tile_rows(), tokens - row);
      const int64_t seen = shape_.causal ? row + rows : tokens;
      const int64_t padded = RoundUp(seen, kRowsAtOnce<T>);
      Product({rows, seen, features}, in.q.From(row), keys_, scores_);
      BestLoops<T>().softmax(
          {rows, seen, scores_.stride, padded, weights_.stride, shape_.scale()},
          shape_.causal ? row + 1 : tokens, shape_.causal ? 1 : 0, scores_.data,
          weights_.data, log_sum_exps + row);
      Product({rows, features, padded}, weights_, values_, out.From(row),
              wide_);
    }
  }

 private:
  const Shape shape_;
  Scratch<T> scratch_;
  const Matrix<T> scratch_keys_, scratch_values_;
  Right<T> keys_ = {}, values_ = {};
  const Matrix<float> scores_;
  const Matrix<T> weights_;
  const Matrix<float> wide_;
};

template <typename T>
class GroupBackward {
 public:
  explicit GroupBackward(const Shape& shape)
      : shape_(shape),
        scratch_(shape),
        queries_(scratch_.OfTokens()),
        queries_t_(scratch_.OfTokens()),
        gradients_(scratch_.OfTokens()),
        gradients_t_(scratch_.OfTokens()),
        keys_t_(scratch_.template Transposed<T>()),
        query_gradients_t_(scratch_.template Transposed<float>()),
        scores_(scratch_.template Tile<float>()),
        weight_gradients_(scratch_.template Tile<float>()),
        weights_(scratch_.template Tile<T>()),
        score_gradients_(scratch_.template Tile<T>()),
        score_gradient_pairs_(scratch_.template Tile<T>()),
        wide_queries_(scratch_.WideTokens()),
        wide_keys_(scratch_.WideTokens()),
        wide_values_(scratch_.WideTokens()),
        dots_(scratch_.Row()) {}

  // Prepares the keys of a group and starts the sums of its gradients.
  void Start(const Qkv<T>& in) {
    Transpose<T>(shape_.tokens, shape_.features, in.k, keys_t_);
    for (int64_t i = 0; i < shape_.features; ++i) {
      std::fill(keys_t_.data + i * keys_t_.stride + shape_.tokens,
                keys_t_.data + (i + 1) * keys_t_.stride, T{0});
    }
    add_ = false;
  }

  // Computes the gradient of one head's queries, and adds the head's part to
  // the gradients of the group's keys and values.
  void Run(const Qkv<T>& in, const Matrix<T>& out, const float* log_sum_exps,
           const Matrix<T>& gradient, const Matrix<T>& query_gradients) {
    const int64_t tokens = shape_.tokens, features = shape_.features;
    BestLoops<T>().row_dots(gradient.data, gradient.stride, out.data,
                            out.stride, tokens, features, dots_);
    const Rights rights = {
        AsRight(tokens, features, in.q, queries_),
        TransposedAsRight(tokens, features, in.q, queries_t_),
        AsRight(tokens, features, gradient, gradients_),
        TransposedAsRight(tokens, features, gradient, gradients_t_)};
    for (int64_t key = 0; key < tokens; key += shape_.tile_rows())
      RunTile(in, key, log_sum_exps, rights);
    add_ = true;
    Transpose<float>(features, tokens, query_gradients_t_, wide_queries_);
    StoreRows(wide_queries_, query_gradients);
  }

  void Finish(const Qkv<T>& gradients) const {
    StoreRows(wide_keys_, gradients.k);
    StoreRows(wide_values_, gradients.v);
  }

 private:
  struct Rights {
    Right<T> queries, queries_t, gradients, gradients_t;
  };

  // Computes the gradients for the tile of keys that begins at `key`. Scores
  // and weights are [keys, queries], for queries that see the first of the
  // keys.
  void RunTile(const Qkv<T>& in, int64_t key, const float* log_sum_exps,
               const Rights& rights) {
    const int64_t features = shape_.features;
    const int64_t keys = std::min(shape_.tile_rows(), shape_.tokens - key);
    const int64_t query = shape_.causal ? key : 0;
    const int64_t queries = shape_.tokens - query;
    const int64_t padded = RoundUp(queries, kRowsAtOnce<T>);
    Product({keys, queries, features}, in.k.From(key),
            rights.queries_t.FromColumn(query), scores_);
    Product({keys, queries, features}, in.v.From(key),
            rights.gradients_t.FromColumn(query), weight_gradients_);
    BestLoops<T>().softmax_backward({keys, queries, scores_.stride, padded,
                                     weights_.stride, shape_.scale()},
                                    /*more_hidden=*/shape_.causal ? 1 : 0,
                                    scores_.data, weight_gradients_.data,
                                    log_sum_exps + query, dots_ + query,
                                    weights_.data, score_gradients_.data);
    Product({keys, features, padded}, weights_, rights.gradients.FromRow(query),
            wide_values_.From(key), add_);
    Product({keys, features, padded}, score_gradients_,
            rights.queries.FromRow(query), wide_keys_.From(key), add_);
    Product({features, queries, RoundUp(keys, kRowsAtOnce<T>)},
            keys_t_.From(0, key),
            AsRight(keys, queries, score_gradients_, score_gradient_pairs_),
            query_gradients_t_.From(0, query), /*add=*/key > 0);
  }

  void StoreRows(const Matrix<float>& from, const Matrix<T>& to) const {
    BestLoops<T>().copy_rows(from.data, from.stride, shape_.tokens,
                             shape_.features, to.data, to.stride);
  }

  const Shape shape_;
  Scratch<T> scratch_;
  const Matrix<T> queries_, queries_t_, gradients_, gradients_t_;
  const Matrix<T> keys_t_;
  const Matrix<float> query_gradients_t_;
  const Matrix<float> scores_, weight_gradients_;
  const Matrix<T> weights_, score_gradients_, score_gradient_pairs_;
  const Matrix<float> wide_queries_, wide_keys_, wide_values_;
  float* const dots_;
  bool add_ = false;  // to the gradients of the group's earlier heads
};

// Calls `run` with the first head of each group, divided among the threads.
template <typename Work>
void ForEachGroup(const Shape& shape,
                  const std::function<void(Work& work, int64_t first)>& run) {
  at::parallel_for(0, shape.examples * shape.kv_heads, /*grain_size=*/1,
                   [&](int64_t begin, int64_t end) {
                     Work work(shape);
                     for (int64_t group = begin; group < end; ++group)
                       run(work, group * shape.group());
                     at::native::cpublas::brgemm_release();
                   });
}

template <typename T>
void Forward(const torch::Tensor& qkv, const Shape& shape,
             const torch::Tensor& out, const torch::Tensor& log_sum_exps) {
  const auto run = [&](GroupForward<T>& work, int64_t first) {
    work.Start({qkv, shape, first});
    for (int64_t head = first; head < first + shape.group(); ++head) {
      work.Run({qkv, shape, head}, HeadOf<T>(out, shape, head),
               Values<float>(log_sum_exps) + head * shape.tokens);
    }
  };
  ForEachGroup<GroupForward<T>>(shape, run);
}

template <typename T>
void Backward(const torch::Tensor& qkv, const Shape& shape,
              const torch::Tensor& out, const torch::Tensor& log_sum_exps,
              const torch::Tensor& gradient, const torch::Tensor& gradients) {
  const auto run = [&](GroupBackward<T>& work, int64_t first) {
    work.Start({qkv, shape, first});
    for (int64_t head = first; head < first + shape.group(); ++head) {
      work.Run({qkv, shape, head}, HeadOf<T>(out, shape, head),
               Values<float>(log_sum_exps) + head * shape.tokens,
               HeadOf<T>(gradient, shape, head),
               Qkv<T>(gradients, shape, head).q);
    }
    work.Finish({gradients, shape, first});
  };
  ForEachGroup<GroupBackward<T>>(shape, run);
}

class AttentionFunction : public OnceDifferentiable<AttentionFunction> {
 public:
  static constexpr char kName[] = "SelfAttention";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& qkv,
                               int64_t heads, int64_t kv_heads, bool causal) {
    const Shape shape(qkv, heads, kv_heads, causal);
    const torch::Tensor out = at::empty(
        {shape.examples, shape.tokens, shape.out_width()}, qkv.options());
    const torch::Tensor log_sum_exps =
        at::empty({shape.examples * heads, shape.tokens},
                  qkv.options().dtype(at::kFloat));
    if (qkv.scalar_type() == at::kFloat) {
      Forward<float>(qkv, shape, out, log_sum_exps);
    } else {
      Forward<Bf16Bits>(qkv, shape, out, log_sum_exps);
    }
    ctx->save_for_backward({qkv, out, log_sum_exps});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["kv_heads"] = kv_heads;
    ctx->saved_data["causal"] = causal;
    return out;
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &qkv = saved[0], &out = saved[1], &sums = saved[2];
    const Shape shape(qkv, ctx->saved_data["heads"].toInt(),
                      ctx->saved_data["kv_heads"].toInt(),
                      ctx->saved_data["causal"].toBool());
    const torch::Tensor gradient =
        gradients[0].to(qkv.scalar_type()).contiguous();
    const torch::Tensor qkv_gradients = at::empty_like(qkv);
    if (qkv.scalar_type() == at::kFloat) {
      Backward<float>(qkv, shape, out, sums, gradient, qkv_gradients);
    } else {
      Backward<Bf16Bits>(qkv, shape, out, sums, gradient, qkv_gradients);
    }
    return {qkv_gradients, {}, {}, {}};
  }
};

// Returns whether this CPU supports the products above, which otherwise throw
// (c10::Error or dnnl::error): checks one whose exact result is 6.
template <typename T>
bool HasProducts(T one) {
  constexpr int64_t kSize = 6;
  std::vector<T> a(kSize * kSize, one), b = a;
  std::vector<float> c(kSize * kSize, 0);
  try {
    Product({kSize, kSize, kSize}, Matrix<const T>{a.data(), kSize},
            Right<T>{b.data(), kSize * kRowsAtOnce<T>},
            Matrix<float>{c.data(), kSize});
    at::native::cpublas::brgemm_release();
  } catch (const std::exception&) {
    return false;
  }
  return std::all_of(c.begin(), c.end(),
                     [](float value) { return value == kSize; });
}

bool HasProductsOf(at::ScalarType type) {
  constexpr Bf16Bits kOne = 0x3F80;
  if (type == at::kFloat) {
    static const bool has = HasProducts<float>(1);
    return has;
  }
  static const bool has = HasProducts<Bf16Bits>(kOne);
  return type == at::kBFloat16 && has;
}

}  // namespace

bool HasSelfAttention(const torch::Tensor& qkv, int64_t heads,
                      int64_t kv_heads) {
  return qkv.is_cpu() && qkv.is_contiguous() && qkv.dim() == 3 &&
         heads % kv_heads == 0 &&
         qkv.size(2) % ((heads + 2 * kv_heads) * 2) == 0 &&
         AutocastType(qkv) == qkv.scalar_type() &&
         HasProductsOf(qkv.scalar_type());
}

torch::Tensor SelfAttention(const torch::Tensor& qkv, int64_t heads,
                            int64_t kv_heads, bool causal) {
  return AttentionFunction::apply(qkv, heads, kv_heads, causal);
}

}  // namespace rankwise
