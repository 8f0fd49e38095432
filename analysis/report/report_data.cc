#include "analysis/report/report_data.h"

#include <algorithm>
#include <vector>

#include "analysis/rate.h"
#include "analysis/report/cell_data.h"
#include "analysis/report/network_data.h"
#include "analysis/report/prediction_data.h"
#include "analysis/report/scaling_data.h"
#include "records/record.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

constexpr size_t kMaxLossPoints = 2000;  // of a curve

json FindingsData(const std::vector<Finding>& findings) {
  json data = json::array();
  for (const Finding& finding : findings) {
    data.push_back({{"title", finding.title}, {"text", finding.text}});
  }
  return data;
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
  json data = json::array();
  for (const TimelinePicture& picture : answer.timelines) {
    data.push_back(
        {{"cell", CellIndex(answer.cells, picture.cell)},
         {"step", picture.measured.empty() ? 0 : picture.measured[0].step},
         {"measured", TimelineData(picture.measured)},
         {"simulated", TimelineData(picture.simulated)}});
  }
  return data;
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

json ReportData(const Answer& answer) {
  json losses = json::array();
  for (const LossCurve& curve : answer.losses) {
    losses.push_back(LossData(curve));
  }
  return {{"findings", FindingsData(answer.findings)},
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
          {"losses", losses}};
}

}  // namespace rankwise
