#include "analysis/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "records/record.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

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
          {"bus_factor", curve.bus_factor},  // not known: null
          {"points", points},
          {"alpha_seconds", line.alpha_seconds},
          {"alpha_interval", IntervalData(line.alpha_interval)},
          {"beta_seconds_per_byte", line.beta_seconds_per_byte},
          {"beta_interval", IntervalData(line.beta_interval)},
          {"error", curve.median_relative_error},
          {"interpolation_error", curve.InterpolationError()}};
}

// Null where it is not known.
template <typename T>
json Known(T value, bool is_known) {
  return is_known ? json(value) : json(nullptr);
}

json PredictionData(const Prediction& prediction) {
  const Layout& layout = prediction.layout;
  return {
      {"name", layout.Name()},
      {"dp", layout.dp},
      {"pp", layout.pp},
      {"ranks", layout.world_size()},
      {"batch_per_rank", layout.batch_per_rank},
      {"micro_batches", layout.micro_batches},
      {"schedule", layout.schedule},
      {"step_seconds", prediction.step_seconds},
      {"step_interval", IntervalData(prediction.step_interval)},
      {"rate", prediction.unit.Rate(prediction.examples_per_second)},
      {"rate_unit", prediction.unit.RateName()},
      {"exposed_comm_seconds", prediction.exposed_comm_seconds},
      {"bubble_seconds", prediction.bubble_seconds},
      {"peak_bytes", prediction.peak_bytes},
      {"extrapolated", prediction.extrapolated},
      {"assumptions", prediction.assumptions},
  };
}

constexpr size_t kMaxLossPoints = 2000;  // of a curve

json FindingData(const Finding& finding) {
  return {{"title", finding.title}, {"text", finding.text}};
}

json TimelineData(const std::vector<TimelineRecord>& timelines) {
  json data = json::array();
  for (const TimelineRecord& timeline : timelines) {
    // One process may have run all of the pipeline's ranks.
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

json TimelinesData(const Answer& answer) {
  return DataOfEach(answer.timelines, [&](const TimelinePicture& picture) {
    return json{
        {"cell", CellIndex(answer.cells, picture.cell)},
        {"step", picture.measured.empty() ? 0 : picture.measured[0].step},
        {"measured", TimelineData(picture.measured)},
        {"simulated", TimelineData(picture.simulated)}};
  });
}

json LossData(const LossCurve& curve) {
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

}  // namespace

json NetworksData(absl::Span<const NetworkModel> networks) {
  json data = json::array();
  for (const NetworkModel& network : networks) {
    json curves = json::array();
    for (const CollectiveCosts& costs : network.collectives) {
      for (const CostCurve& curve : costs.curves) {
        curves.push_back(CurveData(costs.collective, curve));
      }
    }
    data.push_back({{"name", network.name},
                    {"backend", network.backend},
                    {"curves", curves}});
  }
  return data;
}

json CallsData(absl::Span<const Configuration> calls) {
  json data = json::array();
  for (const Configuration& call : calls) {
    json one(call.identity);
    const std::vector<double>& seconds = call.samples[0].values;
    int64_t bytes = 0, ranks = 0;
    if (!absl::SimpleAtoi(call.identity.at("bytes"), &bytes) ||
        !absl::SimpleAtoi(call.identity.at("ranks"), &ranks)) {
      continue;
    }
    one["name"] = call.name;
    one["bytes"] = bytes;
    one["ranks"] = ranks;
    one["seconds"] = Median(seconds);
    one["launches"] = seconds.size();
    one["bus_factor"] = call.bus_factor;
    data.push_back(std::move(one));
  }
  return data;
}

json PredictionsData(const Answer& answer) {
  return DataOfEach(answer.predictions, PredictionData);
}

json ScoresData(const Answer& answer) {
  const auto point_data = [&answer](const ScoredPrediction& point) {
    return json{{"prediction", PredictionData(point.prediction)},
                {"cell", CellIndex(answer.cells, point.cell)},
                {"measured_seconds", point.measured_seconds},
                {"error", point.error},
                {"covered", Known(point.covered, CountsForCoverage(point))}};
  };
  return DataOfEach(answer.scores, [&](const Score& score) {
    return json{
        {"points", DataOfEach(score.points, point_data)},
        {"fitted_up_to", score.fitted_up_to},
        {"median_absolute_error", score.median_absolute_error},
        {"coverage", Known(score.coverage, !std::isnan(score.coverage))},
        {"median_relative_width", score.median_relative_width},
        {"left_out", score.left_out}};
  });
}

json ReportData(const Answer& answer) {
  return {{"findings", DataOfEach(answer.findings, FindingData)},
          {"notes", answer.notes},
          {"cells", CellsData(answer.cells)},
          {"rate_unit", RateColumn(answer.cells).name()},
          {"origin", OriginData(answer.cells)},
          {"rows", RowsData(answer)},
          {"series", SeriesData(answer)},
          {"ledgers", LedgersData(answer)},
          {"waterfalls", WaterfallsData(answer)},
          {"ablations", AblationsData(answer)},
          {"networks", NetworksData(answer.networks)},
          {"calls", CallsData(answer.calls)},
          {"timelines", TimelinesData(answer)},
          {"scores", ScoresData(answer)},
          {"predictions", PredictionsData(answer)},
          {"losses", DataOfEach(answer.losses, LossData)}};
}

}  // namespace rankwise
