#include "analysis/report/report.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/algorithm/container.h"
#include "analysis/report/page.h"
#include "records/record.h"

namespace rankwise {

// The report's scripts, embedded by the build.
extern const char kReportJs[];

namespace {

using ::nlohmann::json;

// Returns the array of data_of(context..., member) for each member of `list`.
template <typename List, typename DataOf, typename... Context>
json DataOfEach(const List& list, const DataOf& data_of,
                const Context&... context) {
  json data = json::array();
  for (const auto& one : list) data.push_back(data_of(context..., one));
  return data;
}

constexpr int kCurvePoints = 40;
constexpr double kDrawnBeyond = 2;  // relative to the largest measured size

json EfficiencyData(const ScalingRow& row) {
  if (!row.efficiency.ok()) return nullptr;
  const Efficiency& efficiency = *row.efficiency;
  return {
      {"speedup", efficiency.speedup},
      {"speedup_interval", IntervalData(efficiency.speedup_interval)},
      {"efficiency", efficiency.efficiency},
      {"efficiency_interval", IntervalData(efficiency.efficiency_interval)},
      {"warning", efficiency.warning},
  };
}

// The law counts ranks in units of `base_ranks`.
json LawData(const AmdahlsLaw& law, int64_t base_ranks, int64_t max_ranks) {
  json ranks = json::array(), speedups = json::array();
  const double unit = static_cast<double>(base_ranks);
  const double furthest = kDrawnBeyond * static_cast<double>(max_ranks) / unit;
  for (int i = 0; i <= kCurvePoints; ++i) {
    const double n = std::pow(furthest, static_cast<double>(i) / kCurvePoints);
    ranks.push_back(n * unit);
    speedups.push_back(law.Speedup(n));
  }
  return {
      {"serial_fraction", law.serial_fraction},
      {"interval", IntervalData(law.interval)},
      {"error", law.median_relative_error},
      {"ranks", ranks},
      {"speedups", speedups},
  };
}

json SeriesData(const Answer& answer, const ScalingSeries& series) {
  const int64_t base_ranks = series.rows.front()->base->run.world_size;
  const int64_t max_ranks = series.rows.back()->cell->run.world_size;
  const auto point_data = [&answer](const ScalingRow* row) {
    return json{{"cell", CellIndex(answer.cells, row->cell)},
                {"efficiency", EfficiencyData(*row)}};
  };
  return {{"trainer", series.trainer},
          {"scaling", std::string(ScalingName(series.scaling))},
          {"base_ranks", base_ranks},
          {"points", DataOfEach(series.rows, point_data)},
          {"law", series.law.has_value()
                      ? LawData(*series.law, base_ranks, max_ranks)
                      : json()}};
}

json PartsData(const LedgerParts& parts) {
  json data;
  for (const LedgerPart& part : kLedgerParts)
    data[part.key] = parts.*part.seconds;
  return data;
}

json RankLedgerData(const RankLedger& rank) {
  return {{"rank", rank.rank},
          {"stage", rank.stage},  // -1 if not a single stage
          {"parts", PartsData(rank.parts)}};
}

json LedgerData(const Answer& answer, const CellLedger& of_cell) {
  return {{"cell", CellIndex(answer.cells, of_cell.cell)},
          {"critical", PartsData(of_cell.ledger.critical)},
          {"ranks", DataOfEach(of_cell.ledger.ranks, RankLedgerData)},
          {"captured_seconds", of_cell.ledger.captured_seconds},
          {"separates_bubble", of_cell.ledger.separates_bubble}};
}

json LossData(const Loss& loss) {
  return {{"cause", LossName(loss.cause)},
          {"remedy", Remedy(loss.cause)},
          {"seconds", loss.seconds},
          {"interval", IntervalData(loss.interval)},  // seconds
          {"points", loss.efficiency_points}};
}

json WaterfallData(const Answer& answer, const Waterfall& waterfall) {
  return {{"cell", CellIndex(answer.cells, waterfall.cell)},
          {"base", CellIndex(answer.cells, waterfall.base)},
          {"scaling", std::string(ScalingName(waterfall.scaling))},
          {"limit_seconds", waterfall.limit_seconds},  // NaN if unknown
          {"ideal_seconds", waterfall.ideal_seconds},
          {"measured_seconds", waterfall.measured_seconds},
          {"losses", DataOfEach(waterfall.losses, LossData)},
          {"merged", waterfall.merged}};
}

// Returns the index of the row's ledger in answer.ledgers, or null.
json LedgerIndex(const Answer& answer, const LayoutRow& row) {
  if (row.ledger == nullptr) return nullptr;
  const auto found = absl::c_find_if(
      answer.ledgers,
      [&row](const CellLedger& entry) { return entry.cell == row.cell; });
  return found - answer.ledgers.begin();
}

json LayoutRowData(const Answer& answer, const LayoutRow& row) {
  return {{"cell", CellIndex(answer.cells, row.cell)},
          {"ledger", LedgerIndex(answer, row)}};
}

json LayoutsData(const Answer& answer, const LayoutComparison& layouts) {
  return {{"scaling", std::string(ScalingName(layouts.scaling))},
          {"ranks", layouts.world_size},
          {"rows", DataOfEach(layouts.rows, LayoutRowData, answer)},
          {"advice", layouts.advice}};
}

json CurveData(const std::string& collective, const CostCurve& curve) {
  json points = json::array();
  for (const CostPoint& point : curve.points) {
    points.push_back({{"bytes", point.bytes},
                      {"seconds", point.median_seconds},
                      {"interval", IntervalData(point.interval)}});
  }
  const CostLine& line = curve.line;
  return {{"collective", collective},
          {"ranks", curve.world_size},
          {"bus_factor", curve.bus_factor},  // NaN if unknown
          {"points", points},
          {"alpha_seconds", line.alpha_seconds},
          {"beta_seconds_per_byte", line.beta_seconds_per_byte}};
}

json PredictionData(const Prediction& prediction) {
  const Layout& layout = prediction.layout;
  return {
      {"name", layout.Name()},
      {"pp", layout.pp},
      {"ranks", layout.ranks()},
      {"batch_per_rank", layout.micro_batch},
      {"micro_batches", layout.micro_batches},
      {"schedule", layout.schedule},
      {"step_seconds", prediction.step_seconds},
      {"step_interval", IntervalData(prediction.step_interval)},
      {"rate", prediction.unit.Rate(prediction.examples_per_second)},
      {"rate_unit", prediction.unit.RateName()},
      {"exposed_comm_seconds", prediction.exposed_comm_seconds},
      {"bubble_seconds", prediction.bubble_seconds},
      {"extrapolations", prediction.extrapolations},
  };
}

constexpr size_t kMaxLossPoints = 2000;  // per curve

json FindingData(const Finding& finding) {
  return {{"title", finding.title}, {"text", finding.text}};
}

json TimelineData(const std::vector<TimelineRecord>& timelines) {
  json data = json::array();
  for (const TimelineRecord& timeline : timelines) {
    // One process may have run all pipeline ranks.
    const int64_t row = std::max(timeline.rank, timeline.pipeline_rank);
    for (const RecordedSpan& span : timeline.spans) {
      data.push_back({{"rank", row},
                      {"action", span.action},
                      {"stage", span.stage},
                      {"micro_batch", span.micro_batch},
                      {"start", span.start_seconds},
                      {"end", span.end_seconds}});
    }
  }
  return data;
}

json PictureData(const Answer& answer, const TimelinePicture& picture) {
  return {{"cell", CellIndex(answer.cells, picture.cell)},
          {"step", picture.measured.empty() ? 0 : picture.measured[0].step},
          {"measured", TimelineData(picture.measured)},
          {"simulated", TimelineData(picture.simulated)}};
}

json LossCurveData(const LossCurve& curve) {
  const size_t count = curve.steps.size();
  const size_t stride = (count + kMaxLossPoints - 1) / kMaxLossPoints;
  json steps = json::array(), losses = json::array();
  for (size_t i = 0; i < count; ++i) {
    if (i % stride != 0 && i + 1 != count) continue;
    steps.push_back(curve.steps[i]);
    losses.push_back(curve.losses[i]);
  }
  return {{"name", curve.name},
          {"stride", stride},
          {"steps", steps},
          {"losses", losses}};
}

json NetworkData(const NetworkModel& network) {
  json curves = json::array();
  for (const CollectiveCosts& costs : network.collectives) {
    for (const CostCurve& curve : costs.curves) {
      curves.push_back(CurveData(costs.collective, curve));
    }
  }
  for (const CollectiveCosts& costs : network.across_hosts) {
    for (const CostCurve& curve : costs.curves) {
      curves.push_back(CurveData(costs.collective + " across hosts", curve));
    }
  }
  return {{"name", network.name}, {"curves", curves}};
}

json PassData(const LayerPass& pass) {
  return {{"layer", pass.layer},
          {"direction", pass.direction},
          {"seconds", pass.seconds},
          {"flopRate", pass.flops_per_second},
          {"byteRate", pass.bytes_per_second},
          {"intensity", pass.flops_per_byte},
          {"limit", pass.limit_seconds},
          {"bound", pass.bound}};
}

json ProfileData(const Answer& answer, const LayerProfile& profile) {
  return {{"cell", CellIndex(answer.cells, profile.cell)},
          {"examples", profile.layers.front().examples},
          {"peak_flops_per_second", 1e12 * profile.cell->peak_tflops},
          {"peak_bytes_per_second", profile.cell->peak_bytes_per_second},
          {"passes", DataOfEach(PassesOf(profile), PassData)}};
}

json ScoredData(const Answer& answer, const ScoredPrediction& point) {
  return {{"prediction", PredictionData(point.prediction)},
          {"cell", CellIndex(answer.cells, point.cell)},
          {"measured_seconds", point.measured_seconds},
          {"error", point.Error()},
          {"covered", point.counts_for_coverage ? json(point.IsCovered())
                                                : json(nullptr)}};
}

json ScoreData(const Answer& answer, const Score& score) {
  return {{"points", DataOfEach(score.points, ScoredData, answer)},
          {"fitted_up_to", score.fitted_up_to},
          {"median_absolute_error", score.median_absolute_error},
          {"coverage", score.coverage},  // NaN if unknown
          {"median_relative_width", score.median_relative_width},
          {"left_out", score.left_out}};
}

}  // namespace

json ReportData(const Answer& answer) {
  return {{"findings", DataOfEach(answer.findings, FindingData)},
          {"notes", answer.notes},
          {"cells", CellsData(answer.cells)},
          {"rate_unit", RateColumn(answer.cells).name()},
          {"origin", OriginData(answer.cells)},
          {"series", DataOfEach(answer.series, SeriesData, answer)},
          {"ledgers", DataOfEach(answer.ledgers, LedgerData, answer)},
          {"waterfalls", DataOfEach(answer.waterfalls, WaterfallData, answer)},
          {"layouts", DataOfEach(answer.layouts, LayoutsData, answer)},
          {"networks", DataOfEach(answer.networks, NetworkData)},
          {"tables", DataOfEach(TablesOf(answer), TableData)},
          {"timelines", DataOfEach(answer.timelines, PictureData, answer)},
          {"profiles", DataOfEach(answer.profiles, ProfileData, answer)},
          {"scores", DataOfEach(answer.scores, ScoreData, answer)},
          {"predictions", DataOfEach(answer.predictions, PredictionData)},
          {"losses", DataOfEach(answer.losses, LossCurveData)}};
}

absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path) {
  json data = ReportData(answer);
  data["command"] = config.command;
  return WritePage({config.title, config.plotly_js, kReportJs}, data, path);
}

}  // namespace rankwise
