#include "analysis/plan/published.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/plan/step.h"
#include "analysis/text/text_table.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr double kGiB = 1 << 30;

// One size of Korthikanti et al. 2022, table 3, without replicas.
struct Size {
  const char* model;
  int64_t pp, chunks, micro_batch, micro_batches;
};
constexpr Size kSizes[] = {{"megatron-22b", 1, 1, 4, 1},
                           {"gpt3-175b", 8, 3, 1, 64},
                           {"turing-530b", 35, 3, 1, 280},
                           {"megatron-1t", 64, 1, 1, 512}};

Layout LayoutOf(const Size& size, Recompute recompute, bool sequence_parallel,
                int64_t dp = 1) {
  Layout layout;
  layout.pp = size.pp;
  layout.dp = dp;
  layout.tp = 8;
  layout.chunks = size.chunks;
  layout.schedule = size.chunks > 1 ? "interleaved_1f1b" : "1f1b";
  layout.micro_batch = size.micro_batch;
  layout.micro_batches = size.micro_batches;
  layout.recompute = recompute;
  layout.sequence_parallel = sequence_parallel;
  return layout;
}

// Returns the step on Selene by Megatron-LM.
absl::StatusOr<double> StepSeconds(const Model& model, const Layout& layout,
                                   const Engine& engine) {
  ASSIGN_OR_RETURN(Cluster selene, NamedCluster("a100-selene"));
  ASSIGN_OR_RETURN(StepModel steps,
                   StepModel::Create({model, engine, std::move(selene)}));
  ASSIGN_OR_RETURN(const Step step, steps.Quick(layout));
  return step.step_seconds;
}

// Table 5, in seconds; and, from section 6.3, the MFU of 530B with 8 replicas.
absl::StatusOr<PublishedTable> Iterations() {
  constexpr double kSeconds[][2] = {
      {1.42, 1.10}, {18.13, 13.75}, {49.05, 37.83}, {94.42, 71.49}};
  constexpr double kMfuOf8Replicas[] = {0.421, 0.542};
  constexpr double kPeak = 312e12;
  PublishedTable table;
  table.title = "Korthikanti et al. 2022, table 5: seconds per iteration";
  const auto add = [&](const Size& size, int64_t dp, bool selective,
                       double seconds) -> absl::Status {
    ASSIGN_OR_RETURN(const Model model, NamedModel(size.model));
    const Layout layout =
        LayoutOf(size, selective ? Recompute::kAttention : Recompute::kFull,
                 selective, dp);
    if (seconds < 1) {  // a value of MFU
      const double flops =
          3 * model.ForwardFlops() * static_cast<double>(layout.global_batch());
      seconds = flops / (seconds * kPeak * static_cast<double>(layout.ranks()));
    }
    ASSIGN_OR_RETURN(const double predicted,
                     StepSeconds(model, layout, Megatron2022()));
    table.rows.push_back(
        {size.model, layout.FullName(), seconds, predicted, dp == 1});
    return absl::OkStatus();
  };
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    for (const bool selective : {false, true})
      RETURN_IF_ERROR(add(kSizes[i], 1, selective, kSeconds[i][selective]));
  }
  for (const bool selective : {false, true})
    RETURN_IF_ERROR(add(kSizes[2], 8, selective, kMfuOf8Replicas[selective]));
  return table;
}

// Returns rank 0's peak of the blocks' activations.
absl::StatusOr<double> BlockActivations(const Model& model,
                                        const Layout& layout) {
  const Engine engine = Megatron2022();
  ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule(layout.schedule, {static_cast<int>(layout.pp),
                                     static_cast<int>(layout.micro_batches),
                                     static_cast<int>(layout.chunks)}));
  ASSIGN_OR_RETURN(const ScheduleFacts facts, Validate(schedule));
  const double inputs = engine.stream_bytes * StreamValues(model, layout);
  const double of_block = layout.recompute == Recompute::kFull
                              ? inputs
                              : BlockKeptBytes(model, layout, engine);
  return of_block * facts.peak_activations[0] *
         static_cast<double>(model.blocks) /
         static_cast<double>(layout.stages());
}

// Figure 1, GiB per rank of the blocks.
absl::StatusOr<std::vector<PublishedTable>> Figure1() {
  constexpr double kState[] = {45.5625, 45.5625, 31.640625, 32.958984375};
  constexpr double kActivations[][2] = {{59.25, 9.5625},
                                        {66.84375, 12.3515625},
                                        {114.0234375, 23.076171875},
                                        {131.25, 26.5625}};
  PublishedTable state, activations;
  state.title =
      "Korthikanti et al. 2022, figure 1: GiB of parameters, gradients and "
      "optimizer state";
  activations.title = "Korthikanti et al. 2022, figure 1: GiB of activations";
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    ASSIGN_OR_RETURN(const Model model, NamedModel(kSizes[i].model));
    for (const bool selective : {false, true}) {
      const Layout layout = LayoutOf(
          kSizes[i], selective ? Recompute::kAttention : Recompute::kNone,
          selective);
      const auto parameters = static_cast<int64_t>(
          static_cast<double>(model.blocks) * model.BlockParameters() /
          static_cast<double>(layout.ranks()));
      state.rows.push_back(
          {model.name, layout.FullName(), kState[i],
           StateMemory({parameters, parameters}, layout, Megatron2022())
                   .state() /
               kGiB,
           true});
      ASSIGN_OR_RETURN(const double bytes, BlockActivations(model, layout));
      activations.rows.push_back({model.name, layout.FullName(),
                                  kActivations[i][selective], bytes / kGiB,
                                  true});
    }
  }
  return std::vector{state, activations};
}

// Figure 7, % of the activations without either.
absl::StatusOr<PublishedTable> Figure7() {
  constexpr struct {
    Recompute recompute;
    bool sequence_parallel;
  } kModes[] = {{Recompute::kNone, false},
                {Recompute::kNone, true},
                {Recompute::kAttention, false},
                {Recompute::kAttention, true},
                {Recompute::kFull, false}};
  constexpr double kShares[][5] = {{100, 66.84, 49.42, 16.18, 7.64},
                                   {100, 62.04, 56.53, 18.49, 8.71},
                                   {100, 58.31, 62.04, 20.27, 9.42},
                                   {100, 58.31, 62.04, 20.27, 9.42}};
  PublishedTable table;
  table.title =
      "Korthikanti et al. 2022, figure 7: activations, % of those without "
      "sequence parallelism and recomputation";
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    ASSIGN_OR_RETURN(const Model model, NamedModel(kSizes[i].model));
    double all = 0;
    for (size_t mode = 0; mode < std::size(kModes); ++mode) {
      const Layout layout = LayoutOf(kSizes[i], kModes[mode].recompute,
                                     kModes[mode].sequence_parallel);
      ASSIGN_OR_RETURN(const double bytes, BlockActivations(model, layout));
      if (mode == 0) all = bytes;
      table.rows.push_back({model.name, layout.FullName(), kShares[i][mode],
                            100 * bytes / all, true});
    }
  }
  return table;
}

// Table 1, TFLOP/s per GPU by the paper's equation 3, which counts the
// recomputed forward of the blocks; layouts of examples/sc21/run_table_1.sh.
absl::StatusOr<PublishedTable> WeakScaling() {
  constexpr struct {
    const char* name;
    int64_t blocks, width, heads, tp, pp, chunks, ranks, batch, micro_batch;
    double tflops;
  } kRows[] = {{"1.7B", 24, 2304, 24, 1, 1, 1, 32, 512, 16, 137},
               {"3.6B", 30, 3072, 32, 2, 1, 1, 64, 512, 16, 138},
               {"7.5B", 36, 4096, 32, 4, 1, 1, 128, 512, 16, 142},
               {"18B", 40, 6144, 48, 8, 1, 1, 256, 1024, 8, 135},
               {"39B", 48, 8192, 64, 8, 2, 1, 512, 1536, 4, 138},
               {"76B", 60, 10240, 80, 8, 4, 3, 1024, 1792, 2, 140},
               {"145B", 80, 12288, 96, 8, 8, 2, 1536, 2304, 2, 148},
               {"310B", 96, 16384, 128, 8, 16, 2, 1920, 2160, 1, 155},
               {"530B", 105, 20480, 128, 8, 35, 3, 2520, 2520, 1, 163},
               {"1T", 128, 25600, 160, 8, 64, 1, 3072, 3072, 1, 163}};
  PublishedTable table;
  table.title =
      "Narayanan et al. 2021, table 1: seconds per iteration, from its "
      "TFLOP/s per GPU";
  for (const auto& row : kRows) {
    const Model model{row.name, row.blocks, row.width, row.heads, 2048, 51200};
    Layout layout;
    layout.tp = row.tp;
    layout.pp = row.pp;
    layout.dp = row.ranks / row.tp / row.pp;
    layout.chunks = row.chunks;
    layout.schedule = row.chunks > 1 ? "interleaved_1f1b" : "1f1b";
    layout.micro_batch = row.micro_batch;
    layout.micro_batches = row.batch / layout.dp / row.micro_batch;
    layout.recompute = Recompute::kFull;
    const double flops =
        static_cast<double>(row.batch) *
        (4 * static_cast<double>(model.blocks) * model.BlockFlops() +
         3 * model.HeadFlops());
    ASSIGN_OR_RETURN(const double predicted,
                     StepSeconds(model, layout, Megatron2021()));
    table.rows.push_back(
        {row.name, layout.FullName(),
         flops / (1e12 * row.tflops * static_cast<double>(row.ranks)),
         predicted});
  }
  return table;
}

}  // namespace

std::vector<std::string> PublishedNames() {
  return {"korthikanti2022", "narayanan2021"};
}

absl::StatusOr<std::vector<PublishedTable>> Published(absl::string_view name) {
  std::vector<PublishedTable> tables;
  if (name == "narayanan2021") {
    ASSIGN_OR_RETURN(tables.emplace_back(), WeakScaling());
    return tables;
  }
  if (name != "korthikanti2022") {
    return absl::InvalidArgumentError(
        absl::StrCat("--validate=", name, ": must be ",
                     absl::StrJoin(PublishedNames(), " or ")));
  }
  ASSIGN_OR_RETURN(tables, Figure1());
  ASSIGN_OR_RETURN(tables.emplace_back(), Figure7());
  ASSIGN_OR_RETURN(auto iterations, Iterations());
  tables.insert(tables.begin(), std::move(iterations));
  return tables;
}

double MeanError(absl::Span<const PublishedRow> rows) {
  double sum = 0;
  for (const PublishedRow& row : rows) sum += std::abs(row.error());
  return sum / static_cast<double>(rows.size());
}

double LargestError(absl::Span<const PublishedRow> rows) {
  double largest = 0;
  for (const PublishedRow& row : rows)
    largest = std::max(largest, std::abs(row.error()));
  return largest;
}

std::string PublishedText(const PublishedTable& table) {
  TextTable text({"model", "layout", "reported", "predicted", "error"}, 2);
  std::vector<PublishedRow> calculon, others;
  for (const PublishedRow& row : table.rows) {
    text.AddRow({row.name, row.layout, absl::StrFormat("%.2f", row.reported),
                 absl::StrFormat("%.2f", row.predicted),
                 SignedPercentText(row.error())});
    (row.in_calculon ? calculon : others).push_back(row);
  }
  std::string result = absl::StrCat(table.title, "\n", text.ToString());
  const auto sum_up = [&result](const char* which,
                                const std::vector<PublishedRow>& rows) {
    if (rows.empty()) return;
    absl::StrAppendFormat(
        &result, "%s: mean error %.2f %%, the largest %.2f %%\n", which,
        100 * MeanError(rows), 100 * LargestError(rows));
  };
  sum_up("Rows that Calculon validates with", calculon);
  sum_up("Other rows", others);
  return result;
}

}  // namespace rankwise::plan
