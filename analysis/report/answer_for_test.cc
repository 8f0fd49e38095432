#include "analysis/report/answer_for_test.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// Indices into the answer's cells.
enum Place { kSingle, kDdp1, kDdp2Strong, kDdp2, kDdp4, kDdp8, k1f1b, kH1 };

std::vector<Cell> MakeCells(const std::string& name) {
  std::vector<Cell> cells = {
      MakeCell("single", 1, 64, 1685), MakeCell("ddp", 1, 64, 1636),
      MakeCell("ddp", 2, 32, 1926),    MakeCell("ddp", 2, 64, 2508),
      MakeCell("ddp", 4, 64, 4420),    MakeCell("ddp", 8, 64, 7260),
      MakeCell("1f1b", 2, 32, 1929),   MakeCell("zero_bubble_h1", 2, 32, 2189),
  };
  for (Cell& cell : cells) {
    cell.run.host = {.hostname = absl::StrCat("box", name),
                     .cpu_model = absl::StrCat("Made-up CPU", name),
                     .cores = 8,
                     .memory_bytes = int64_t{32} << 30};
    cell.run.forward_flops_per_example = 1e9;
    cell.peak_tflops = 20;
    cell.peak_bytes_per_second = 400e9;
    cell.memory = {.rank = 0,
                   .measured = {.parameter_bytes = 100'000'000,
                                .gradient_bytes = 100'000'000,
                                .optimizer_bytes = 200'000'000,
                                .activation_bytes = 350'000'000},
                   .computed = {.parameter_bytes = 100'000'000,
                                .gradient_bytes = 100'000'000,
                                .optimizer_bytes = 200'000'000,
                                .activation_bytes = 340'000'000}};
    cell.run.flags["data_dir"] = absl::StrCat("folder", name);
    cell.code_versions = {absl::StrCat("source 0123abc with torch 2.11", name)};
  }
  return cells;
}

ScalingRow Row(const Cell& cell, const std::string& scaling, const Cell& base) {
  const double speedup = Median(cell.Values(&Throughput::examples_per_second)) /
                         Median(base.Values(&Throughput::examples_per_second));
  const double share = speedup / static_cast<double>(cell.run.world_size);
  Efficiency efficiency;
  efficiency.speedup = speedup;
  efficiency.speedup_interval = {0.96 * speedup, 1.03 * speedup};
  efficiency.efficiency = share;
  efficiency.efficiency_interval = {0.96 * share, 1.03 * share};
  return {&cell, scaling, &base, efficiency};
}

void AddRows(Answer& answer) {
  const std::vector<Cell>& cells = answer.cells;
  const Cell& single = cells[kSingle];
  answer.rows = {{&single, "base", nullptr},
                 Row(cells[kDdp1], "both", single),
                 Row(cells[kDdp2Strong], "strong", single),
                 Row(cells[kDdp2], "weak", single),
                 Row(cells[kDdp4], "weak", single),
                 Row(cells[kDdp8], "weak", single),
                 Row(cells[k1f1b], "strong", single),
                 Row(cells[kH1], "strong", single)};
  answer.rows.push_back(
      {&cells[kH1], "weak", &single,
       absl::FailedPreconditionError("the batch per rank differs: 64 and 32")});
}

void AddSeries(Answer& answer) {
  const auto& rows = answer.rows;
  const auto series = [&answer](const std::string& trainer, Scaling scaling,
                                std::vector<const ScalingRow*> members) {
    ScalingSeries made;
    made.trainer = trainer;
    made.scaling = scaling;
    made.rows = std::move(members);
    answer.series.push_back(std::move(made));
  };
  series("ddp", Scaling::kStrong, {&rows[1], &rows[2]});
  answer.series[0].serial_fractions = {{2, 0.7, {0.66, 0.75}}};
  answer.series[0].serial_trend = "rises: overhead that grows with the ranks";
  answer.series[0].law = {.serial_fraction = 0.42,
                          .interval = {0.36, 0.49},
                          .median_relative_error = 0.06};
  series("pipeline 1f1b", Scaling::kStrong, {&rows[6]});
  answer.series[1].no_law = "a fit needs a world size above the base's";
  series("pipeline zero_bubble_h1", Scaling::kStrong, {&rows[7]});
  series("ddp", Scaling::kWeak, {&rows[1], &rows[3], &rows[4], &rows[5]});
}

void AddLedgers(Answer& answer) {
  for (const Cell& cell : answer.cells) {
    answer.ledgers.push_back({&cell, MakeLedger(cell)});
  }
  const Cell& single = answer.cells[kSingle];
  for (const ScalingRow& row : answer.rows) {
    if (row.base == nullptr || !row.efficiency.ok()) continue;
    answer.waterfalls.push_back(MakeWaterfall(
        *row.cell, single,
        row.scaling == "weak" ? Scaling::kWeak : Scaling::kStrong));
  }
  answer.waterfalls[1].merged = {
      "shared cores are not separated from the smaller batch, as single was "
      "not run with batch 32"};
  Ablation ablation;
  ablation.cell = &answer.cells[kDdp2];
  ablation.without = &answer.cells[kDdp1];
  ablation.saved_seconds = 0.0119;
  ablation.exposed_seconds = 0.0093;
  ablation.slowed_seconds = 0.0021;
  ablation.disagreement = -0.042;
  ablation.exposed_disagreement = -0.218;
  answer.ablations.push_back(ablation);
}

void AddPredictions(Answer& answer) {
  Score score;
  score.fitted_up_to = 2;
  for (Place place : {kDdp4, kDdp8}) {
    const Cell& cell = answer.cells[place];
    const double measured = Median(cell.Values(&Throughput::step_seconds));
    const double error = place == kDdp4 ? -0.03 : 0.07;
    ScoredPrediction point;
    point.prediction =
        MakePrediction(cell.run.world_size, measured * (1 + error));
    point.cell = &cell;
    point.measured_seconds = measured;
    score.points.push_back(point);
  }
  score.median_absolute_error = 0.05;
  score.coverage = 0.5;
  score.median_relative_width = 0.12;
  score.left_out = {"pipeline 1f1b on 4 ranks: no timeline was recorded"};
  answer.scores.push_back(score);
  for (int64_t ranks : {16, 64}) {
    answer.predictions.push_back(
        MakePrediction(ranks, 0.07 + 0.008 * std::log2(ranks)));
    answer.predictions.back().extrapolations = {
        "ddp with communication was recorded on no more than 4 ranks"};
  }
}

void AddLearning(Answer& answer) {
  answer.target_loss = 0.5;
  CellLearning reached = {&answer.cells[kDdp4], {12.5, 13}, 900};
  reached.staleness.rounds = {{0, 30}, {2, 10}};
  reached.staleness.updates = {{0, 15}, {9, 25}};
  answer.learning = {reached, {&answer.cells[kDdp8], {}, 1500}};
}

void AddPlanScore(Answer& answer, const std::string& name) {
  ScoredPrediction ddp;
  ddp.model = absl::StrCat("nano", name);
  ddp.prediction.layout.dp = 2;
  ddp.prediction.layout.micro_batch = 4;
  ddp.prediction.step_seconds = 0.05;
  ddp.prediction.step_interval = {0.04, 0.06};
  ddp.prediction.peak_bytes = 30e6;
  ddp.measured_seconds = 0.055;
  ddp.measured_bytes = 31e6;
  ScoredPrediction zero = ddp;
  zero.prediction.layout.zero = 3;
  zero.prediction.step_seconds = 0.06;
  zero.measured_seconds = 0.05;
  zero.measured_bytes = 0;
  Score& score = answer.plan_score.emplace();
  score.points = {ddp, zero};
  score.regrets = {{2, ddp, zero}};
  score.median_absolute_error = 0.145;
  score.coverage = 1;
  score.median_relative_width = 0.4;
  score.median_regret = 0.1;
}

void AddWords(Answer& answer, const std::string& name) {
  answer.findings = {
      {absl::StrCat("How well it scales", name),
       "Strong scaling: pipeline zero_bubble_h1 on 2 ranks, with the same "
       "global batch of 64, trains 1.30 times as fast as single on 1 rank "
       "(ideal 2): 65.0 % efficiency, 95 % interval [62.4, 66.9].\nWeak "
       "scaling: ddp on 8 ranks, with the same batch of 64 per rank, trains "
       "4.31 times as fast as single on 1 rank (ideal 8): 53.9 % efficiency, "
       "95 % interval [51.7, 55.5]."},
      {"What costs most",
       "ddp on 8 ranks, weak scaling: 53.9 % of the ideal speed; largest loss: "
       "exposed communication along dp, 21.4 points (15.1 ms a step)."},
      {"What to change",
       absl::StrCat("Larger buckets, or fewer of them.", name)},
  };
  answer.notes = {
      absl::StrCat("ddp-x3-3.jsonl is left out: rank 1 has no records", name),
      "pipeline zero_bubble_h1 on 2 ranks, weak: the batch per rank differs"};
}

}  // namespace

std::unique_ptr<Answer> FullAnswer(const std::string& name) {
  auto answer = std::make_unique<Answer>();
  answer->cells = MakeCells(name);
  AddRows(*answer);
  AddSeries(*answer);
  AddLedgers(*answer);
  answer->layouts = CompareLayouts(*answer);
  AddPlanScore(*answer, name);
  AddPredictions(*answer);
  AddLearning(*answer);
  for (const char* backend : {"gloo", "fake"}) {
    answer->networks.push_back(
        MakeNetwork(absl::StrCat(backend, " on box", name), backend));
  }
  Configuration call;
  call.name = absl::StrCat("all_reduce of 4096 B", name);
  call.identity = {{"collective", "all_reduce"},
                   {"bytes", "4096"},
                   {"ranks", "2"},
                   {"hosts", "1"},
                   {"layer", "nccl"},
                   {"backend", "nccl"},
                   {"dtype", "float32"},
                   {"group", ""},
                   {"in place", "no"},
                   {"in flight", "1"},
                   {"cache", "hot"},
                   {"sync", "barrier"},
                   {"timing", "events"},
                   {"graph", "yes"},
                   {"registered", "no"},
                   {"algorithm", "RING"},
                   {"protocol", "LL"}};
  call.bytes = 4096;
  call.ranks = 2;
  call.samples = {{"call_seconds", {2e-5}}};
  call.bus_factor = 1;
  answer->calls = {call};
  for (Place place : {k1f1b, kH1}) {
    answer->timelines.push_back(MakeTimelines(answer->cells[place]));
  }
  answer->profiles = {MakeProfile(answer->cells[kSingle], name)};
  for (const Cell& cell : answer->cells) {
    answer->losses.push_back(
        MakeLosses(absl::StrCat(cell.Name(), name), cell.run.world_size));
  }
  AddWords(*answer, name);
  return answer;
}

std::unique_ptr<Answer> BareAnswer() {
  auto answer = std::make_unique<Answer>();
  answer->cells = {MakeCell("single", 1, 64, 1685)};
  answer->rows = {{&answer->cells[0], "base", nullptr}};
  answer->notes = {"single on 1 rank has 1 repetition, 2 are needed"};
  return answer;
}

}  // namespace rankwise
