#include "analysis/plan/layout.h"

#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

absl::Status Divides(const char* what, int64_t size, const char* axis,
                     int64_t ranks) {
  if (size % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(axis, " ", ranks, " does not divide ", size, " ", what));
}

std::vector<Stage> EqualBlocks(const Model& model, int64_t stages) {
  std::vector<Stage> cut(stages);
  for (int64_t i = 0; i < stages; ++i)
    cut[i].blocks = model.blocks / stages + (i < model.blocks % stages ? 1 : 0);
  cut.front().embedding = true;
  cut.back().norm = cut.back().head = true;
  return cut;
}

}  // namespace

absl::StatusOr<Engine> OwnEngine(absl::string_view precision, bool on_cpu) {
  Engine engine;
  engine.name = "rankwise";
  engine.norms_in_fp32 = !on_cpu;
  if (precision == "bf16") {
    engine.cast_bytes = 4 + 2;  // autocast reads fp32 and writes 16 bits
    return engine;
  }
  if (precision != "fp32") {
    return absl::InvalidArgumentError(
        absl::StrCat("--precision=", precision, ": must be fp32 or bf16"));
  }
  engine.value_bytes = 4;
  return engine;
}

Engine Megatron2021() {
  Engine engine;
  engine.name = "Megatron-LM 2021";
  engine.stream_bytes = 2;
  engine.norms_in_fp32 = false;
  engine.fused_attention = false;
  engine.attended = 1;
  engine.dropout = true;
  engine.hides_tp_sums = false;
  engine.equal_blocks = true;
  engine.recomputes_blocks = true;
  engine.recomputes_replicas = true;
  engine.splits_messages = true;
  engine.parameter_bytes = 2;
  engine.gradient_bytes = 2;
  engine.optimizer_bytes = 12;
  engine.reduced_bytes = 2;
  engine.accumulate_bytes = 6;
  engine.update_bytes = 30;
  return engine;
}

Engine Megatron2022() {
  Engine engine = Megatron2021();
  engine.name = "Megatron-LM 2022";
  engine.hides_tp_sums = true;
  engine.gradient_bytes = 4;
  // Products accumulate directly into the fp32 gradients.
  engine.accumulate_bytes = 0;
  return engine;
}

absl::Status CheckLayout(const Model& model, const Layout& layout,
                         const Engine& engine) {
  RETURN_IF_ERROR(Divides("heads", model.heads, "tp", layout.tp));
  if (layout.cp > 1) {
    RETURN_IF_ERROR(Divides("tokens", model.sequence, "2 x cp", 2 * layout.cp));
  }
  if (layout.sequence_parallel && layout.tp == 1) {
    return absl::InvalidArgumentError("sequence parallelism needs tp above 1");
  }
  if (layout.stages() > model.blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(layout.stages(), " stages of ", model.blocks, " blocks"));
  }
  if (layout.zero > 0 && layout.dp == 1) {
    return absl::InvalidArgumentError("ZeRO needs dp above 1");
  }
  if (layout.recompute != Recompute::kNone && layout.is_data_parallel() &&
      layout.zero == 0 && !engine.recomputes_replicas) {
    return absl::InvalidArgumentError(
        "recomputation needs ZeRO, pp, cp or tp: single and ddp have none");
  }
  if (layout.zero == 3 && layout.cuts_backward()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ZeRO 3 with ", layout.schedule, ", which splits backward"));
  }
  if (layout.interleaves() && layout.micro_batches % layout.pp != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        layout.micro_batches, " micro-batches on ", layout.pp, " stages"));
  }
  return absl::OkStatus();
}

std::string CommandOf(const Model& model, const Layout& layout,
                      absl::string_view precision) {
  const bool data = layout.is_data_parallel();
  const char* trainer = !data             ? "hybrid"
                        : layout.zero > 0 ? "fsdp"
                        : layout.dp > 1   ? "ddp"
                                          : "single";
  std::string text = absl::StrCat("//trainers:", trainer, " --");
  if (layout.ranks() > 1) absl::StrAppend(&text, " --nproc=", layout.ranks());
  if (!data) {
    absl::StrAppend(&text, " --pp=", layout.pp, " --cp=", layout.cp,
                    " --tp=", layout.tp);
    if (layout.pp > 1) absl::StrAppend(&text, " --schedule=", layout.schedule);
    if (layout.interleaves())
      absl::StrAppend(&text, " --chunks=", layout.stages_per_rank());
    if (layout.sequence_parallel)
      absl::StrAppend(&text, " --sequence_parallel");
  }
  if (layout.zero > 0) absl::StrAppend(&text, " --zero=", layout.zero);
  if (layout.recompute == Recompute::kFull)
    absl::StrAppend(&text, " --recompute");
  if (!data || layout.micro_batches > 1) {
    absl::StrAppend(&text, data ? " --accumulate=" : " --microbatches=",
                    layout.micro_batches);
  }
  absl::StrAppend(&text, " --batch_size=", layout.micro_batch,
                  " --precision=", precision);
  if (model.has_trainer)
    absl::StrAppend(&text, " --model=gpt --model_size=", model.name);
  return text;
}

absl::StatusOr<std::vector<Stage>> CutModel(const Model& model, int64_t stages,
                                            bool equal_blocks) {
  if (equal_blocks && stages <= model.blocks) return EqualBlocks(model, stages);
  std::vector<double> flops(model.blocks + 3, model.BlockFlops());
  flops.front() = flops[model.blocks + 1] = 0;
  flops.back() = model.HeadFlops();
  ASSIGN_OR_RETURN(Cuts cuts, BalanceLayers(flops, stages));
  cuts.push_back(flops.size());
  std::vector<Stage> cut;
  int64_t begin = 0;
  for (const size_t layer : cuts) {
    const auto end = static_cast<int64_t>(layer);
    const auto has = [&](int64_t one) { return begin <= one && one < end; };
    cut.push_back(
        {has(0), has(model.blocks + 1), has(model.blocks + 2),
         std::min(end, model.blocks + 1) - std::max<int64_t>(begin, 1)});
    cut.back().blocks = std::max<int64_t>(cut.back().blocks, 0);
    begin = end;
  }
  return cut;
}

}  // namespace rankwise::plan
