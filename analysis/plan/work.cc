#include "analysis/plan/work.h"

#include <algorithm>
#include <cmath>

#include "analysis/plan/link_run.h"
#include "parallel/context/order/ring_order.h"

namespace rankwise::plan {
namespace {

constexpr double kWideBytes = 4;  // fp32
// In backward, a norm's kernel reads the gradient, the input and the residual's
// gradient, and writes one value: in units of forward's read and write.
constexpr double kNormBackward = 2;
// Bytes per fp32 logit: the cast, its maximum, its exponential and their sum,
// the division, and the cast back to the product's type.
constexpr double kLossBytes = 52;
// Kernels per forward (trainers/models/transformer.cc); backward has as many
// for the input gradients and for the weight gradients.
constexpr double kBlockKernels = 16;  // norms, products, GELU, sums, views
constexpr double kEmbeddingKernels = 3, kNormKernels = 1, kHeadKernels = 3;

// Computes durations of kernels on one device.
class Kernels {
 public:
  Kernels(const Device& device, double value_bytes)
      : device_(device), value_bytes_(value_bytes) {}

  // `count` simultaneous products of [m, k] and [k, n].
  double Product(double m, double n, double k, double count = 1) const {
    const double flops = 2 * count * m * n * k;
    const double bytes = value_bytes_ * count * (m * k + k * n + m * n);
    return std::max(flops / (device_.peak_flops * device_.efficiency.At(flops)),
                    Move(bytes));
  }
  // A kernel that reads and writes `bytes`.
  double Move(double bytes) const {
    return bytes / device_.memory_bytes_per_second;
  }
  // Adds the overhead of launching a layer's kernels to each of its passes.
  void AddStarts(double kernels, PassSeconds& seconds) const {
    const double starts = kernels * device_.kernel_seconds;
    seconds.forward += starts;
    seconds.input_grad += starts;
    seconds.weight_grad += starts;
  }
  double value_bytes() const { return value_bytes_; }

 private:
  const Device& device_;
  const double value_bytes_;
};

// Returns one rank's part of an example.
TransformerPart PartOf(const Model& model, const Layout& layout,
                       const Engine& engine) {
  const int64_t tokens = model.sequence / layout.cp;
  const int64_t divided = layout.sequence_parallel ? layout.tp : 1;
  return {.features = model.width,
          .heads = model.heads,
          .tensor = layout.tp,
          .tokens = model.sequence,
          .tokens_here = tokens,
          .tokens_between = (tokens + divided - 1) / divided,
          .dropout = engine.dropout,
          .has_statistics = engine.fused_attention};
}

KeptTypes KeptTypesOf(const Layout& layout, const Engine& engine) {
  const bool autocast =
      engine.value_bytes < kWideBytes && engine.fused_attention;
  // Softmax and its dropout result in 16 bits, and a mask.
  const bool keeps_attention =
      !engine.fused_attention && layout.recompute == Recompute::kNone;
  return {.value_bytes = engine.value_bytes,
          .wide_bytes = NormInputBytes(layout, engine),
          .attention_weight_bytes = keeps_attention ? (2 + 2 + 1) / 3.0 : 0,
          .casts = autocast,
          .casts_weights = autocast && layout.zero == 0};
}

// Dimensions of a block on one rank.
struct Shape {
  Shape(const Model& model, const Layout& layout)
      : h(static_cast<double>(model.width)),
        t(static_cast<double>(layout.tp)),
        heads(static_cast<double>(model.heads) / t),
        head_width(h / static_cast<double>(model.heads)),
        sequence(static_cast<double>(model.sequence)),
        examples(static_cast<double>(layout.micro_batch)),
        within(examples * sequence / static_cast<double>(layout.cp)),
        between(examples *
                static_cast<double>(PartOf(model, layout, {}).tokens_between)),
        vocabulary(std::ceil(static_cast<double>(model.vocabulary) / t)) {}

  double h, t, heads, head_width, sequence, examples;
  double within, between;  // tokens
  double vocabulary;
};

// Seconds of attention between q, k, v and its output.
struct AttentionSeconds {
  double forward = 0, backward = 0;
};

// Forward has two products of all token pairs, backward four. Unless fused, the
// weights pass through memory between them: softmax and dropout each read and
// write them, dropout also a one-byte mask; backward reads two more.
AttentionSeconds Attention(const Shape& x, const Engine& engine,
                           const Kernels& kernels) {
  const double rows = x.within / x.examples;
  const double count = x.examples * x.heads;
  AttentionSeconds seconds;
  if (engine.fused_attention) {
    const double keys = x.sequence * engine.attended;
    // A fused kernel computes one product, keeps its weights on chip, and
    // recomputes them in backward (Dao et al. 2022).
    const double one = kernels.Product(rows, 2 * keys, x.head_width, count);
    return {one, 2.5 * one};
  }
  const double scores = kernels.Product(rows, x.sequence, x.head_width, count);
  const double mix = kernels.Product(rows, x.head_width, x.sequence, count);
  const double weights = count * rows * x.sequence;
  const double masked =
      engine.dropout ? weights * (2 * kernels.value_bytes() + 1) : 0;
  seconds.forward =
      scores + mix + kernels.Move(2 * kernels.value_bytes() * weights + masked);
  seconds.backward = 2 * (scores + mix) +
                     kernels.Move(3 * kernels.value_bytes() * weights + masked);
  return seconds;
}

// The four matrix products, [tokens, outputs] of `inputs`.
struct Products {
  Products(const Shape& x, const Kernels& kernels)
      : qkv(kernels.Product(x.within, 3 * x.h / x.t, x.h)),
        projection(kernels.Product(x.within, x.h, x.h / x.t)),
        expand(kernels.Product(x.within, 4 * x.h / x.t, x.h)),
        contract(kernels.Product(x.within, x.h, 4 * x.h / x.t)) {}
  double Sum() const { return qkv + projection + expand + contract; }

  double qkv, projection, expand, contract;
};

// Bytes moved by norms, GELU, residual sums and dropout.
struct Elementwise {
  Elementwise(const Shape& x, const Engine& engine) {
    const double stream = engine.stream_bytes * x.between * x.h;
    const double value = engine.value_bytes * x.between * x.h;
    const double mask = engine.dropout ? x.between * x.h : 0;
    const double inner = engine.value_bytes * 4 * x.within * x.h / x.t;
    // Twice each: a norm reads the stream; a residual sum reads it and a
    // product's output and writes it.
    forward =
        2 * (stream + value) + 2 * (2 * stream + value + mask) + 2 * inner;
    backward = 2 * kNormBackward * (stream + value) +
               2 * (stream + value + mask) + 3 * inner;
  }
  double forward = 0, backward = 0;
};

// Returns the communication time that concurrent computation does not hide.
double Exposed(double communication, double computing, const Cluster& cluster) {
  const double hidden =
      std::min(communication * cluster.speed_during_communication, computing);
  return communication - hidden;
}

// Along tp, a layer's output and, in backward, its input's gradient are summed,
// in one all-reduce or, with sequence parallelism, a reduce-scatter and an
// all-gather before the next product (parallel/tensor/linear.h).
void AddTensorExchanges(const Shape& x, const Layout& layout,
                        const Engine& engine, const Cluster& cluster,
                        const Products& products, CostSide side,
                        PassSeconds& seconds) {
  if (layout.tp == 1) return;
  const Line line = LineAlong(cluster, layout.tp, 1);
  const double bytes = engine.value_bytes * x.within * x.h;
  const auto takes = [&](const char* collective) {
    return CollectiveSeconds(cluster, collective, bytes, line, side);
  };
  const double hidden_by[] = {products.qkv, products.expand};
  if (!layout.sequence_parallel) {
    const double sum = takes("all_reduce");
    seconds.tp_forward += 2 * sum;
    for (const double weight : hidden_by) {
      seconds.tp_backward +=
          engine.hides_tp_sums ? Exposed(sum, weight, cluster) : sum;
    }
    return;
  }
  const double gather = takes("all_gather"), scatter = takes("reduce_scatter");
  seconds.tp_forward += 2 * (gather + scatter);
  // The gathers of gradients before the row-parallel products are exposed.
  seconds.tp_backward += 2 * gather;
  for (const double product : hidden_by) {
    seconds.tp_backward += Exposed(gather, product, cluster);
    seconds.tp_backward +=
        engine.hides_tp_sums ? Exposed(scatter, product, cluster) : scatter;
  }
}

// One rank's ring attention: its exchanges run one after another on a link,
// alongside the blocks.
class TimedRing final : public RingBackwardRank {
 public:
  TimedRing(double attend, double keys, double gradients,
            const Cluster& cluster)
      : attend_(attend),
        keys_(keys),
        gradients_(gradients),
        link_(cluster.speed_during_communication) {}

  void StartKeys(int) override { keys_end_ = link_.Start(keys_); }
  void TakeKeys() override { link_.WaitUntil(keys_end_); }
  void Attend(int) override { link_.Compute(attend_); }
  void AddGradients(int) override {}
  void StartGradients(int) override {
    gradients_end_ = link_.Start(gradients_);
  }
  void TakeGradients() override { link_.WaitUntil(gradients_end_); }

  double exposed() const { return link_.exposed(); }

 private:
  const double attend_, keys_, gradients_;
  LinkRun link_;
  double keys_end_ = 0, gradients_end_ = 0;
};

// Ring attention, in the engine's order (docs/hybrid.md). In backward, the
// gradients of keys and values also circulate, in fp32.
void AddContextExchanges(const Shape& x, const Layout& layout,
                         const Engine& engine, const Cluster& cluster,
                         const AttentionSeconds& attention, CostSide side,
                         PassSeconds& seconds) {
  if (layout.cp == 1) return;
  const Line line = LineAlong(cluster, layout.cp, layout.tp);
  const double numbers = 2 * x.within * x.h / x.t;
  const double keys = CollectiveSeconds(
      cluster, "ping_pong", engine.value_bytes * numbers, line, side);
  const double gradients =
      CollectiveSeconds(cluster, "ping_pong", kWideBytes * numbers, line, side);
  const auto steps = static_cast<double>(layout.cp);
  TimedRing forward(attention.forward / steps, keys, 0, cluster);
  RunRingForward(static_cast<int>(layout.cp), forward);
  seconds.cp_forward += forward.exposed();
  TimedRing backward(attention.backward / steps, keys, gradients, cluster);
  RunRingBackward(static_cast<int>(layout.cp), backward);
  seconds.cp_backward += backward.exposed();
}

// Adds the recomputed forward of the layer to backward.
void AddForwardAgain(PassSeconds& seconds) {
  seconds.recompute = seconds.forward;
  seconds.tp_backward += seconds.tp_forward;
  seconds.cp_backward += seconds.cp_forward;
}

// Returns the bytes moved per parameter and micro-batch, to accumulate and to
// cast.
double BytesPerParameter(const Layout& layout, const Engine& engine) {
  const double casts =
      CastsOnce(layout) ? 1 / static_cast<double>(layout.micro_batches) : 1.0;
  return engine.accumulate_bytes + engine.cast_bytes * casts;
}

PassSeconds SecondsOfBlock(const Model& model, double parameters,
                           const Layout& layout, const Engine& engine,
                           const Cluster& cluster, CostSide side) {
  const Shape x(model, layout);
  const Kernels kernels(cluster.device, engine.value_bytes);
  const Products products(x, kernels);
  const AttentionSeconds attention = Attention(x, engine, kernels);
  const Elementwise elementwise(x, engine);
  PassSeconds seconds;
  seconds.forward =
      products.Sum() + attention.forward + kernels.Move(elementwise.forward);
  seconds.input_grad =
      products.Sum() + attention.backward + kernels.Move(elementwise.backward);
  seconds.weight_grad =
      products.Sum() +
      kernels.Move(BytesPerParameter(layout, engine) * parameters);
  kernels.AddStarts(kBlockKernels, seconds);
  AddTensorExchanges(x, layout, engine, cluster, products, side, seconds);
  AddContextExchanges(x, layout, engine, cluster, attention, side, seconds);
  if (layout.recompute == Recompute::kAttention)
    seconds.recompute = attention.forward;
  if (layout.recompute == Recompute::kFull) AddForwardAgain(seconds);
  return seconds;
}

// The sum along tp, and kernels that read and write the stream.
PassSeconds SecondsOfEmbedding(const Model& model, const Layout& layout,
                               const Engine& engine, const Cluster& cluster,
                               CostSide side) {
  const Shape x(model, layout);
  const Kernels kernels(cluster.device, engine.value_bytes);
  PassSeconds seconds;
  seconds.forward = seconds.weight_grad =
      kernels.Move(3 * engine.stream_bytes * x.between * x.h);
  kernels.AddStarts(kEmbeddingKernels, seconds);
  if (layout.tp > 1) {
    const char* const sum =
        layout.sequence_parallel ? "reduce_scatter" : "all_reduce";
    seconds.tp_forward =
        CollectiveSeconds(cluster, sum, engine.stream_bytes * x.within * x.h,
                          LineAlong(cluster, layout.tp, 1), side);
  }
  return seconds;
}

PassSeconds SecondsOfNorm(const Model& model, const Layout& layout,
                          const Engine& engine, const Cluster& cluster) {
  const Shape x(model, layout);
  const Kernels kernels(cluster.device, engine.value_bytes);
  PassSeconds seconds;
  seconds.forward = kernels.Move(2 * engine.stream_bytes * x.between * x.h);
  seconds.input_grad = kNormBackward * seconds.forward;
  kernels.AddStarts(kNormKernels, seconds);
  return seconds;
}

// Includes the loss, whose logits are fp32.
PassSeconds SecondsOfHead(const Model& model, const Layout& layout,
                          const Engine& engine, const Cluster& cluster,
                          CostSide side) {
  const Shape x(model, layout);
  const Kernels kernels(cluster.device, engine.value_bytes);
  const double product = kernels.Product(x.within, x.vocabulary, x.h);
  const double logits = x.within * x.vocabulary;
  PassSeconds seconds;
  seconds.forward = product + kernels.Move(kLossBytes / 2 * logits);
  seconds.input_grad = product + kernels.Move(kLossBytes / 2 * logits);
  seconds.weight_grad = product;
  kernels.AddStarts(kHeadKernels, seconds);
  if (layout.tp > 1) {
    const double bytes = engine.value_bytes * x.within * x.h;
    const Line line = LineAlong(cluster, layout.tp, 1);
    if (layout.sequence_parallel)
      seconds.tp_forward =
          CollectiveSeconds(cluster, "all_gather", bytes, line, side);
    const double sum =
        CollectiveSeconds(cluster, "all_reduce", bytes, line, side);
    seconds.tp_backward =
        engine.hides_tp_sums ? Exposed(sum, product, cluster) : sum;
  }
  return seconds;
}

}  // namespace

PassSeconds& PassSeconds::operator+=(const PassSeconds& other) {
  for (const auto part :
       {&PassSeconds::forward, &PassSeconds::input_grad,
        &PassSeconds::weight_grad, &PassSeconds::recompute,
        &PassSeconds::tp_forward, &PassSeconds::tp_backward,
        &PassSeconds::cp_forward, &PassSeconds::cp_backward}) {
    this->*part += other.*part;
  }
  return *this;
}

PassSeconds operator*(double times, PassSeconds seconds) {
  return {times * seconds.forward,     times * seconds.input_grad,
          times * seconds.weight_grad, times * seconds.recompute,
          times * seconds.tp_forward,  times * seconds.tp_backward,
          times * seconds.cp_forward,  times * seconds.cp_backward};
}

Work& Work::operator+=(const Work& other) {
  seconds += other.seconds;
  kept_bytes += other.kept_bytes;
  until_weight_grad_bytes += other.until_weight_grad_bytes;
  return *this;
}

Work operator*(double times, Work work) {
  return {times * work.seconds, times * work.kept_bytes,
          times * work.until_weight_grad_bytes};
}

double StreamBytes(const Layout& layout, const Engine& engine) {
  return layout.zero > 0 ? std::min(engine.stream_bytes, engine.value_bytes)
                         : engine.stream_bytes;
}

double NormInputBytes(const Layout& layout, const Engine& engine) {
  return engine.norms_in_fp32 ? kWideBytes : StreamBytes(layout, engine);
}

bool CastsOnce(const Layout& layout) {
  return layout.is_data_parallel() && layout.zero == 0;
}

bool RunsStagesAgain(const Layout& layout, const Engine& engine) {
  return layout.recompute == Recompute::kFull && !engine.recomputes_blocks &&
         !layout.is_data_parallel();
}

bool CopiesTiedWeight(const Model& model, const Layout& layout,
                      const Stage& stage) {
  // zbv has the first and the last stage on one rank.
  return model.tied_head && stage.head && !stage.embedding && layout.pp > 1 &&
         layout.schedule != "zbv";
}

UnitSize SizeOfStage(const Model& model, const Layout& layout,
                     const Stage& stage, const LayerWork& work) {
  UnitSize all;
  const auto add = [&](int64_t times, const ParameterShapes& shapes) {
    const UnitSize one = SizeOf(shapes, layout.zero > 0 ? layout.dp : 1);
    all.numbers += times * one.numbers;
    all.padded_numbers += times * one.padded_numbers;
  };
  if (stage.embedding) add(1, work.shapes.embedding);
  add(stage.blocks, work.shapes.block);
  if (stage.norm) add(1, work.shapes.norm);
  const bool own = !model.tied_head || CopiesTiedWeight(model, layout, stage);
  if (stage.head && own) add(1, work.shapes.head);
  return all;
}

double ParametersOf(const Model& model, const Layout& layout,
                    const Stage& stage, const LayerWork& work) {
  return static_cast<double>(SizeOfStage(model, layout, stage, work).numbers);
}

double StreamValues(const Model& model, const Layout& layout) {
  return static_cast<double>(layout.micro_batch) *
         PartOf(model, layout, {}).StreamValues();
}

double BlockKeptBytes(const Model& model, const Layout& layout,
                      const Engine& engine) {
  return KeptBytes(BlockMemory(PartOf(model, layout, engine)).kept,
                   static_cast<double>(layout.micro_batch),
                   KeptTypesOf(layout, engine));
}

Work LayerWork::Of(const Stage& stage) const {
  Work work = static_cast<double>(stage.blocks) * block;
  if (stage.embedding) work += embedding;
  if (stage.norm) work += norm;
  if (stage.head) work += head;
  return work;
}

LayerWork WorkOf(const Model& model, const Layout& layout, const Engine& engine,
                 const Cluster& cluster, CostSide side) {
  const TransformerPart part = PartOf(model, layout, engine);
  const LayerMemory embedding = EmbeddingMemory(part, model.vocabulary,
                                                /*positions=*/true),
                    block = BlockMemory(part), norm = NormMemory(part),
                    head = HeadMemory(part, model.vocabulary);
  const KeptTypes types = KeptTypesOf(layout, engine);
  const auto examples = static_cast<double>(layout.micro_batch);
  const auto work_of = [&](const KeptForBackward& kept, PassSeconds seconds) {
    return Work{seconds, KeptBytes(kept, examples, types),
                engine.value_bytes * examples * kept.until_weight_grad};
  };
  LayerWork work;
  work.shapes = {embedding.parameters, block.parameters, norm.parameters,
                 head.parameters};
  work.embedding = work_of(
      embedding.kept, SecondsOfEmbedding(model, layout, engine, cluster, side));
  const auto parameters =
      static_cast<double>(SizeOf(block.parameters, 1).numbers);
  work.block = work_of(block.kept, SecondsOfBlock(model, parameters, layout,
                                                  engine, cluster, side));
  work.norm = work_of(norm.kept, SecondsOfNorm(model, layout, engine, cluster));
  work.head =
      work_of(head.kept, SecondsOfHead(model, layout, engine, cluster, side));
  const Shape x(model, layout);
  work.head.kept_bytes += kWideBytes * x.within * x.vocabulary;  // for the loss
  if (RunsStagesAgain(layout, engine)) {
    for (Work* layer : {&work.embedding, &work.norm, &work.head})
      AddForwardAgain(layer->seconds);
  }
  work.input_bytes = StreamBytes(layout, engine) * StreamValues(model, layout);
  return work;
}

}  // namespace rankwise::plan
