#include <string>

#include "absl/types/span.h"
#include "analysis/report/report.h"
#include "analysis/stats/statistics.h"
#include "records/record.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

json PassData(const std::string& layer, const char* direction,
              absl::Span<const double> seconds, double flops, double bytes) {
  return {{"layer", layer},
          {"direction", direction},
          {"seconds", Median(seconds)},
          {"flops", flops},
          {"bytes", bytes}};
}

json ProfileData(const Answer& answer, const LayerProfile& profile) {
  json passes = json::array();
  for (const LayerRecord& layer : profile.layers) {
    passes.push_back(PassData(layer.name, "forward", layer.forward_seconds,
                              layer.forward_flops, layer.forward_bytes));
    passes.push_back(PassData(layer.name, "backward", layer.backward_seconds,
                              layer.backward_flops, layer.backward_bytes));
  }
  return {{"cell", CellIndex(answer.cells, profile.cell)},
          {"examples", profile.layers.front().examples},
          {"peak_flops_per_second", 1e12 * profile.cell->peak_tflops},
          {"peak_bytes_per_second", profile.cell->peak_bytes_per_second},
          {"passes", passes}};
}

}  // namespace

json ProfilesData(const Answer& answer) {
  json data = json::array();
  for (const LayerProfile& profile : answer.profiles) {
    data.push_back(ProfileData(answer, profile));
  }
  return data;
}

}  // namespace rankwise
