#include "analysis/plan/memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "analysis/plan/units.h"
#include "parallel/pipeline/simulation/memory.h"

namespace rankwise::plan {
namespace {

constexpr double kWideBytes = 4;  // fp32

// ZeRO gathers 16-bit parameters, and keeps fp32 rows apart.
bool HasBf16(const Layout& layout, const Engine& engine) {
  return layout.zero > 0 && engine.value_bytes < kWideBytes;
}

// Of one micro-batch.
StageBytes BytesOf(const Stage& stage, bool is_first, bool is_last,
                   const Layout& layout, const Engine& engine,
                   const LayerWork& work) {
  const Work all = work.Of(stage);
  StageBytes bytes;
  if (!is_first) bytes.input = work.input_bytes;
  if (!is_last) bytes.output = work.input_bytes;
  // Norms keep the input itself, or a copy.
  const bool copies =
      NormInputBytes(layout, engine) != StreamBytes(layout, engine);
  const double shared = copies ? 0 : bytes.input;
  const double kept = all.kept_bytes - shared;
  // The first stage has no input gradient: everything is left to W.
  bytes.until_weight_grad =
      kept + (is_first ? bytes.output : all.until_weight_grad_bytes);
  if (layout.recompute != Recompute::kFull) {
    bytes.kept = kept;
  } else if (engine.recomputes_blocks || layout.is_data_parallel()) {
    Stage ends = stage;
    ends.blocks = 0;
    const double of_ends = work.Of(ends).kept_bytes;
    bytes.kept =
        static_cast<double>(stage.blocks) * work.input_bytes + of_ends - shared;
    // The head's backward has ended before a block is computed again.
    bytes.recomputed =
        std::max(0.0, work.block.kept_bytes - work.input_bytes - of_ends);
  } else {
    bytes.recomputed = kept + bytes.output;
  }
  return bytes;
}

std::vector<StageBytes> BytesOfStages(const std::vector<Stage>& cut,
                                      const Layout& layout,
                                      const Engine& engine,
                                      const LayerWork& work) {
  std::vector<StageBytes> stages;
  for (size_t i = 0; i < cut.size(); ++i) {
    stages.push_back(
        BytesOf(cut[i], i == 0, i + 1 == cut.size(), layout, engine, work));
  }
  return stages;
}

// PeakBytesOfEach without messages, and much sooner.
std::vector<double> PeaksWithoutMessages(
    const Schedule& schedule, const std::vector<StageBytes>& stages) {
  std::vector<double> peaks;
  for (const std::vector<Action>& actions : schedule.actions) {
    double now = 0, most = 0;
    for (const Action& action : actions) {
      const StageBytes& stage = stages[action.stage];
      if (action.kind == ActionKind::kForward) {
        now += stage.kept;
        most = std::max(most, now);
      } else if (action.kind == ActionKind::kWeightGrad) {
        now -= stage.until_weight_grad;
      } else {  // B or I
        most = std::max(most, now + stage.recomputed);
        now -= stage.kept;
        if (action.kind == ActionKind::kInputGrad)
          now += stage.until_weight_grad;
      }
    }
    peaks.push_back(most);
  }
  return peaks;
}

// One micro-batch's pass through one of a rank's stages; `stage` indexes these.
struct StagePass {
  size_t stage = 0;
  bool backward = false;
  bool completes = false;  // the stage's gradients of the step
};

// In the order of the rank's schedule, without passes that cannot raise the
// peak: the micro-batches of a single stage are alike, and with ZeRO 1 and 2
// units stay gathered and gradients accumulate in place, from the second
// micro-batch on in fp32.
std::vector<StagePass> PassesOf(const Layout& layout, const Schedule& schedule,
                                int rank) {
  const std::vector<int> stages = schedule.StagesOf(rank);
  if (stages.size() == 1) {
    std::vector<StagePass> passes;
    for (int64_t i = std::min<int64_t>(layout.micro_batches, 3); i > 0; --i) {
      passes.push_back({0});
      passes.push_back({0, true, /*completes=*/i == 1});
    }
    return passes;
  }
  std::vector<StagePass> passes;
  std::vector<int64_t> forwards(stages.size()), backwards(stages.size());
  for (const Action& action : schedule.actions[static_cast<size_t>(rank)]) {
    const bool backward = action.kind == ActionKind::kBackward ||
                          action.kind == ActionKind::kWeightGrad;
    if (!backward && action.kind != ActionKind::kForward) continue;
    const auto stage = static_cast<size_t>(
        absl::c_lower_bound(stages, action.stage) - stages.begin());
    const int64_t number = ++(backward ? backwards : forwards)[stage];
    const bool completes = backward && number == layout.micro_batches;
    if (layout.zero == 3 || number <= 2 || completes)
      passes.push_back({stage, backward, completes});
  }
  return passes;
}

// The peak of the buffers that docs/memory.md lists; `stages`: the rank's.
double UnshardedPeak(const Model& model, const Layout& layout,
                     const Engine& engine, const LayerWork& work,
                     const std::vector<Stage>& stages, const Schedule& schedule,
                     int rank) {
  if (layout.zero == 0) return 0;
  UnitSections units = UnitSectionsOf(model, layout, engine, stages, work);
  const std::vector<SectionRange> ranges = std::move(units.stages);
  UnitMemory memory(std::move(units), UnitOrderOf(layout),
                    {.zero = layout.zero,
                     .ranks = static_cast<int>(layout.dp),
                     .parameter_bytes = HasBf16(layout, engine) ? 2 : 4});
  for (const StagePass& pass : PassesOf(layout, schedule, rank)) {
    const SectionRange& stage = ranges[pass.stage];
    if (!pass.backward) {
      memory.StageForward(stage);
    } else if (layout.is_data_parallel()) {
      memory.Backward(/*reduces=*/pass.completes);
    } else {
      if (RunsStagesAgain(layout, engine)) memory.StageForward(stage);
      memory.StageBackward(stage);
      if (pass.completes) memory.CompleteStep(stage);
    }
  }
  if (!layout.is_data_parallel()) memory.EndStep();
  return static_cast<double>(memory.peak());
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
  // The sum over several micro-batches is fp32 and contains the rank's rows.
  const bool bf16_gradients = bf16 && layout.micro_batches == 1;
  memory.gradients = layout.zero >= 2 ? engine.gradient_bytes * rows
                     : bf16_gradients ? 2 * parameters
                                      : engine.gradient_bytes * parameters;
  if (bf16 && layout.zero < 3) memory.parameters += kWideBytes * rows;
  if (bf16_gradients && layout.zero < 2) memory.gradients += kWideBytes * rows;
  return memory;
}

std::vector<Memory> RankMemory(const Model& model, const Layout& layout,
                               const Engine& engine, const LayerWork& work,
                               const std::vector<Stage>& cut,
                               const Schedule& schedule) {
  const StepMemory step = {.stages = BytesOfStages(cut, layout, engine, work),
                           .recompute = layout.recompute == Recompute::kFull};
  const bool sends = schedule.num_ranks() == 1 || HasCommunication(schedule);
  const std::vector<double> activations =
      sends ? PeakBytesOfEach(schedule, step)
            : PeaksWithoutMessages(schedule, step.stages);
  std::vector<Memory> ranks;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<Stage> own;
    for (const int stage : schedule.StagesOf(rank)) own.push_back(cut[stage]);
    double parameters = 0;
    for (const Stage& stage : own)
      parameters += ParametersOf(model, layout, stage, work);
    Memory memory = StateMemory(parameters, layout, engine);
    memory.unsharded =
        UnshardedPeak(model, layout, engine, work, own, schedule, rank);
    memory.activations = activations[static_cast<size_t>(rank)];
    ranks.push_back(memory);
  }
  return ranks;
}

double LeastMemory(const Model& model, const Layout& layout,
                   const Engine& engine, const LayerWork& work,
                   const std::vector<Stage>& cut) {
  const auto p = static_cast<size_t>(layout.pp);
  const std::vector<StageBytes> bytes =
      BytesOfStages(cut, layout, engine, work);
  double most = 0;
  for (size_t rank = 0; rank < p; ++rank) {
    double kept = 0, parameters = 0;
    const bool is_v = layout.schedule == "zbv";
    for (size_t chunk = 0; chunk * p < cut.size(); ++chunk) {
      const size_t place = is_v && chunk % 2 == 1 ? p - 1 - rank : rank;
      const size_t index = chunk * p + place;
      parameters += ParametersOf(model, layout, cut[index], work);
      const StageBytes& stage = bytes[index];
      const double ends =
          stage.input +
          (layout.recompute == Recompute::kFull ? 0 : stage.output);
      kept = std::max(kept, ends + stage.kept + stage.recomputed);
    }
    most =
        std::max(most, StateMemory(parameters, layout, engine).state() + kept);
  }
  return most;
}

}  // namespace rankwise::plan
