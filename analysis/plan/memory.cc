#include "analysis/plan/memory.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"

namespace rankwise::plan {
namespace {

constexpr double kWideBytes = 4;  // fp32

// ZeRO gathers 16-bit parameters, and keeps fp32 rows apart.
bool HasBf16(const Layout& layout, const Engine& engine) {
  return layout.zero > 0 && engine.value_bytes < kWideBytes;
}

bool HasEmbedding(const Stage& stage) { return stage.embedding; }
bool HasHead(const Stage& stage) { return stage.head; }

// Of one micro-batch through a stage: what is there from forward to backward,
// what backward adds, and what is there from I to W.
struct Held {
  double kept = 0, working = 0, until_weight_grad = 0;
};

Held HeldBy(const Stage& stage, bool is_first, bool is_last,
            const Layout& layout, const Engine& engine, const LayerWork& work) {
  const Work all = work.Of(stage);
  const double output = is_last ? 0 : work.input_bytes;
  const double whole = all.kept_bytes + output;
  // The first stage has no input's gradient: all is left to W.
  const double until_weight_grad =
      is_first ? whole : all.kept_bytes + all.until_weight_grad_bytes;
  if (layout.recompute != Recompute::kFull)
    return {whole, 0, until_weight_grad};
  const bool one_by_one = engine.recomputes_blocks || layout.is_data_parallel();
  if (!one_by_one) {
    const double input = is_first ? 0 : work.input_bytes;
    return {input, whole - input, until_weight_grad};
  }
  Stage ends = stage;
  ends.blocks = 0;
  const double of_ends = work.Of(ends).kept_bytes;
  const double inputs = static_cast<double>(stage.blocks) * work.input_bytes;
  // The head is through with its backward before a block is computed again.
  return {inputs + of_ends,
          std::max(0.0, work.block.kept_bytes - work.input_bytes - of_ends)};
}

// The most at one time, following the rank's actions as the engine does.
double PeakActivations(const std::vector<Action>& actions,
                       const std::vector<Held>& held) {
  double now = 0, most = 0;
  for (const Action& action : actions) {
    const Held& stage = held[action.stage];
    if (action.kind == ActionKind::kForward) {
      now += stage.kept;
      most = std::max(most, now);
    } else if (action.kind == ActionKind::kWeightGrad) {
      now -= stage.until_weight_grad;
    } else if (IsCompute(action.kind)) {  // B or I
      most = std::max(most, now + stage.working);
      now -= stage.kept;
      if (action.kind == ActionKind::kInputGrad) now += stage.until_weight_grad;
    }
  }
  return most;
}

// The numbers of a rank's units, in the order of its layers.
std::vector<double> UnitsOf(const std::vector<Stage>& stages,
                            const LayerWork& work) {
  std::vector<double> units;
  for (const Stage& stage : stages) {
    if (stage.embedding) units.push_back(work.embedding.parameters);
    units.insert(units.end(), stage.blocks, work.block.parameters);
    if (stage.head) units.push_back(work.head.parameters);
  }
  return units;
}

constexpr size_t kInFlight = 2;  // reduce-scatters, with --prefetch=1

// Where gradients of `bytes` a number wait for a step's last micro-batch: all
// of them, of which one unit after the other is copied into the input of its
// reduce-scatter.
double WaitingGradients(const std::vector<double>& units, double bytes) {
  double now = bytes * std::accumulate(units.begin(), units.end(), 0.0);
  double most = now;
  for (size_t i = 0; i < units.size(); ++i) {
    if (i >= kInFlight) now -= kWideBytes * units[i - kInFlight];
    now += kWideBytes * units[i];
    most = std::max(most, now);
    now -= bytes * units[i];
  }
  return most;
}

// The peak of the buffers that docs/memory.md lists. ZeRO 3 has the parameters
// of two units and of a tied embedding, `tied`.
double UnshardedBytes(const std::vector<Stage>& stages, double tied,
                      const Layout& layout, const Engine& engine,
                      const LayerWork& work) {
  if (layout.zero == 0) return 0;
  const std::vector<double> units = UnitsOf(stages, work);
  const double bytes = HasBf16(layout, engine) ? 2 : kWideBytes;
  std::vector<double> largest = units;
  std::sort(largest.rbegin(), largest.rend());
  largest.resize(std::max(largest.size(), kInFlight));
  const double reduced = kWideBytes * (largest[0] + largest[1]);
  if (layout.zero == 1) return reduced;
  const double gathered =
      layout.zero < 3 ? 0 : bytes * (2 * work.block.parameters + tied);
  if (layout.is_data_parallel() && layout.micro_batches == 1)
    return reduced + bytes * largest[0] + gathered;
  const double all = bytes * std::accumulate(units.begin(), units.end(), 0.0);
  return std::max(all + gathered, WaitingGradients(units, bytes));
}

// With the copy of a tied weight whose owner is on another rank.
double ParametersOf(const Model& model, const Layout& layout,
                    const LayerWork& work, const std::vector<Stage>& cut,
                    const std::vector<int>& stages) {
  double parameters = 0;
  bool embedding = false, head = false;
  for (const int stage : stages) {
    parameters += work.Of(cut[stage]).parameters;
    embedding = embedding || cut[stage].embedding;
    head = head || cut[stage].head;
  }
  if (model.tied_head && head && !embedding) {
    const auto tp = static_cast<double>(layout.tp);
    parameters += static_cast<double>(model.vocabulary) *
                  static_cast<double>(model.width) / tp;
  }
  return parameters;
}

}  // namespace

Memory StateMemory(double parameters, const Layout& layout,
                   const Engine& engine) {
  const double n = layout.zero > 0 ? static_cast<double>(layout.dp) : 1;
  const double rows = parameters / n;
  Memory memory;
  memory.optimizer = engine.optimizer_bytes * rows;
  const bool bf16 =
      HasBf16(layout, engine) && engine.parameter_bytes == kWideBytes;
  const double whole = bf16 ? 2 : engine.parameter_bytes;
  memory.parameters =
      layout.zero == 3 ? engine.parameter_bytes * rows : whole * parameters;
  memory.gradients = layout.zero >= 2 ? engine.gradient_bytes * rows
                     : bf16           ? 2 * parameters
                                      : engine.gradient_bytes * parameters;
  if (bf16 && layout.zero < 3) memory.parameters += kWideBytes * rows;
  if (bf16 && layout.zero < 2) memory.gradients += kWideBytes * rows;
  return memory;
}

std::vector<Memory> RankMemory(const Model& model, const Layout& layout,
                               const Engine& engine, const LayerWork& work,
                               const std::vector<Stage>& cut,
                               const Schedule& schedule) {
  std::vector<Held> held;
  for (size_t i = 0; i < cut.size(); ++i) {
    held.push_back(
        HeldBy(cut[i], i == 0, i + 1 == cut.size(), layout, engine, work));
  }
  std::vector<Memory> ranks;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::vector<int> stages = schedule.StagesOf(rank);
    const double parameters = ParametersOf(model, layout, work, cut, stages);
    Memory memory = StateMemory(parameters, layout, engine);
    std::vector<Stage> own;
    for (const int stage : stages) own.push_back(cut[stage]);
    const bool ties = model.tied_head && absl::c_any_of(own, HasEmbedding) &&
                      absl::c_any_of(own, HasHead);
    memory.unsharded = UnshardedBytes(own, ties ? work.embedding.parameters : 0,
                                      layout, engine, work);
    memory.activations = PeakActivations(schedule.actions[rank], held);
    ranks.push_back(memory);
  }
  return ranks;
}

double LeastMemory(const Model& model, const Layout& layout,
                   const Engine& engine, const LayerWork& work,
                   const std::vector<Stage>& cut) {
  const auto p = static_cast<size_t>(layout.pp);
  double most = 0;
  for (size_t rank = 0; rank < p; ++rank) {
    std::vector<int> stages;
    double kept = 0;
    const bool is_v = layout.schedule == "zbv";
    for (size_t chunk = 0; chunk * p < cut.size(); ++chunk) {
      const size_t place = is_v && chunk % 2 == 1 ? p - 1 - rank : rank;
      stages.push_back(static_cast<int>(chunk * p + place));
      const size_t stage = stages.back();
      const Held held = HeldBy(cut[stage], stage == 0, stage + 1 == cut.size(),
                               layout, engine, work);
      kept = std::max(kept, held.kept + held.working);
    }
    const double parameters = ParametersOf(model, layout, work, cut, stages);
    most =
        std::max(most, StateMemory(parameters, layout, engine).state() + kept);
  }
  return most;
}

}  // namespace rankwise::plan
