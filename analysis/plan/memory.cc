#include "analysis/plan/memory.h"

#include <algorithm>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "analysis/plan/units.h"
#include "parallel/pipeline/simulation/memory.h"
#include "parallel/sharded/order/unit_passes.h"

namespace rankwise::plan {
namespace {

constexpr double kWideBytes = 4;  // fp32

// ZeRO gathers 16-bit parameters and keeps fp32 rows separately.
bool HasBf16(const Layout& layout, const Engine& engine) {
  return layout.zero > 0 && engine.value_bytes < kWideBytes;
}

// Returns the bytes of one micro-batch.
StageBytes BytesOf(const Stage& stage, bool is_first, bool is_last,
                   const Layout& layout, const Engine& engine,
                   const LayerWork& work) {
  const Work all = work.Of(stage);
  // Norms keep their input, or a copy.
  const bool keeps_input =
      NormInputBytes(layout, engine) == StreamBytes(layout, engine);
  const double input = is_first ? 0 : work.input_bytes;
  const bool recompute = layout.recompute == Recompute::kFull;
  StageBytes bytes =
      StageBytesOf({.input = input,
                    .output = is_last ? 0 : work.input_bytes,
                    .kept = all.kept_bytes,
                    .keeps_input = keeps_input,
                    .until_weight_grad = all.until_weight_grad_bytes},
                   recompute);
  if (!recompute || RunsStagesAgain(layout, engine)) return bytes;
  Stage ends = stage;
  ends.blocks = 0;
  const double of_ends = work.Of(ends).kept_bytes;
  bytes.kept = static_cast<double>(stage.blocks) * work.input_bytes + of_ends -
               (keeps_input ? input : 0);
  // The head's backward ends before a block is recomputed.
  bytes.recomputed =
      std::max(0.0, work.block.kept_bytes - work.input_bytes - of_ends);
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

// Returns the rank's passes in schedule order, without those that cannot raise
// the peak: with ZeRO 1 and 2 units stay gathered and gradients accumulate in
// place, from the second micro-batch on in fp32; with ZeRO 3 the same passes of
// a single stage are equal.
std::vector<SectionPass> PassesThatDiffer(
    const Layout& layout, const Engine& engine, const Schedule& schedule,
    int rank, const std::vector<SectionRange>& stages) {
  const std::vector<int> own = schedule.StagesOf(rank);
  const bool all = layout.zero == 3 && own.size() > 1;
  std::vector<SectionPass> passes;
  std::vector<int64_t> forwards(own.size()), backwards(own.size());
  for (const StagePass& pass :
       PassesOf(schedule, {rank}, RunsStagesAgain(layout, engine))) {
    const auto stage =
        static_cast<size_t>(absl::c_lower_bound(own, pass.stage) - own.begin());
    const int64_t number = ++(pass.backward ? backwards : forwards)[stage];
    if (all || number <= 2 || pass.completes)
      passes.push_back({stages[stage], pass.backward, pass.completes});
  }
  return passes;
}

// Returns the peak of the buffers listed in docs/memory.md; `stages` are the
// rank's.
double UnshardedPeak(const Model& model, const Layout& layout,
                     const Engine& engine, const LayerWork& work,
                     const std::vector<Stage>& stages, const Schedule& schedule,
                     int rank) {
  if (layout.zero == 0) return 0;
  const UnitSections units =
      UnitSectionsOf(model, layout, engine, stages, work);
  UnitMemory memory(units.layout, UnitOrderOf(layout),
                    {.zero = layout.zero,
                     .ranks = static_cast<int>(layout.dp),
                     .parameter_bytes = HasBf16(layout, engine) ? 2 : 4});
  if (layout.is_data_parallel()) {
    // Micro-batches after the third do not change the peak.
    memory.RunMicroBatches(std::min<int64_t>(layout.micro_batches, 3));
  } else {
    memory.RunPasses(
        PassesThatDiffer(layout, engine, schedule, rank, units.stages));
  }
  return static_cast<double>(memory.peak());
}

}  // namespace

Memory StateMemory(const UnitSize& size, const Layout& layout,
                   const Engine& engine) {
  const bool bf16 =
      HasBf16(layout, engine) && engine.parameter_bytes == kWideBytes;
  const int64_t ranks = layout.zero > 0 ? layout.dp : 1;
  const auto held = [&](const DividedTensors& tensors) {
    return BytesHeld(tensors, size, layout.zero, ranks);
  };
  return {.parameters = held({.divided_from = 3,
                              .row_bytes = engine.parameter_bytes,
                              .in_bf16 = bf16}),
          // The sum over several micro-batches is fp32 and contains the rows.
          .gradients = held({.divided_from = 2,
                             .row_bytes = engine.gradient_bytes,
                             .in_bf16 = bf16 && layout.micro_batches == 1}),
          .optimizer = engine.optimizer_bytes *
                       static_cast<double>(size.padded_numbers / ranks)};
}

std::vector<Memory> RankMemory(const Model& model, const Layout& layout,
                               const Engine& engine, const LayerWork& work,
                               const std::vector<Stage>& cut,
                               const Schedule& schedule) {
  StepMemory step = {.stages = BytesOfStages(cut, layout, engine, work),
                     .recompute = layout.recompute == Recompute::kFull};
  if (schedule.num_ranks() > 1 && !HasCommunication(schedule)) {
    for (StageBytes& stage : step.stages) stage.input = stage.output = 0;
  }
  const std::vector<double> activations = PeakBytesPerRank(schedule, step);
  std::vector<Memory> ranks;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<Stage> own;
    for (const int stage : schedule.StagesOf(rank)) own.push_back(cut[stage]);
    UnitSize size;
    for (const Stage& stage : own)
      size += SizeOfStage(model, layout, stage, work);
    Memory memory = StateMemory(size, layout, engine);
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
    double kept = 0;
    UnitSize size;
    const bool is_v = layout.schedule == "zbv";
    for (size_t chunk = 0; chunk * p < cut.size(); ++chunk) {
      const size_t place = is_v && chunk % 2 == 1 ? p - 1 - rank : rank;
      const size_t index = chunk * p + place;
      size += SizeOfStage(model, layout, cut[index], work);
      const StageBytes& stage = bytes[index];
      const double ends =
          stage.input +
          (layout.recompute == Recompute::kFull ? 0 : stage.output);
      kept = std::max(kept, ends + stage.kept + stage.recomputed);
    }
    most = std::max(most, StateMemory(size, layout, engine).state() + kept);
  }
  return most;
}

}  // namespace rankwise::plan
