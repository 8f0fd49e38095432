#include "analysis/report/prediction_data.h"

#include <cmath>

#include "analysis/report/cell_data.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

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

}  // namespace

json PredictionsData(const Answer& answer) {
  json data = json::array();
  for (const Prediction& prediction : answer.predictions) {
    data.push_back(PredictionData(prediction));
  }
  return data;
}

json ScoresData(const Answer& answer) {
  json data = json::array();
  for (const Score& score : answer.scores) {
    json points = json::array();
    for (const ScoredPrediction& point : score.points) {
      points.push_back(
          {{"prediction", PredictionData(point.prediction)},
           {"cell", CellIndex(answer.cells, point.cell)},
           {"measured_seconds", point.measured_seconds},
           {"error", point.error},
           {"covered", Known(point.covered, CountsForCoverage(point))}});
    }
    data.push_back(
        {{"points", points},
         {"fitted_up_to", score.fitted_up_to},
         {"median_absolute_error", score.median_absolute_error},
         {"coverage", Known(score.coverage, !std::isnan(score.coverage))},
         {"median_relative_width", score.median_relative_width},
         {"left_out", score.left_out}});
  }
  return data;
}

}  // namespace rankwise
