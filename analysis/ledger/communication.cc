#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "analysis/ledger/ledger.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

constexpr char kAll[] = "all";

// Returns the axis that spans all ranks of the run and shares their group.
std::string AxisOfAllRanks(const RunRecord& run) {
  for (const RecordedAxis& axis : run.mesh) {
    if (axis.size == run.world_size) return axis.name;
  }
  const int64_t averaging = AxisSize(run, "dp") * AxisSize(run, "cp");
  return averaging == run.world_size ? "dp" : kAll;
}

std::string AxisOf(const RecordedTransfer& event, const RunRecord& run) {
  if (event.group.empty()) return AxisOfAllRanks(run);
  return absl::StartsWith(event.group, "dp_") ? "dp" : event.group;
}

// Counts a message at its sender. Counts the calls within a coalesced launch,
// but not the launch itself.
bool Counts(const RecordedTransfer& event) {
  return event.op != "recv" && event.op != "start_coalescing" &&
         event.op != "coalesced";
}

AxisCommunication& Find(const std::string& axis,
                        std::vector<AxisCommunication>& all) {
  const auto found = absl::c_find_if(
      all, [&](const AxisCommunication& one) { return one.axis == axis; });
  return found == all.end() ? all.emplace_back(AxisCommunication{axis})
                            : *found;
}

}  // namespace

std::vector<AxisCommunication> MeasureCommunication(
    const RunTrace& run, absl::Span<const RankLedger> ranks) {
  std::vector<AxisCommunication> all;
  for (const ExposedAxis& axis : kExposedAxes) all.push_back({axis.axis});
  int64_t steps = 0;  // summed over all ranks
  for (const RankTrace& rank : run.ranks) {
    steps += std::ssize(rank.traffic);
    for (const TrafficRecord& step : rank.traffic) {
      for (const RecordedTransfer& event : step.events) {
        if (!Counts(event)) continue;
        AxisCommunication& axis = Find(AxisOf(event, rank.run), all);
        axis.calls += 1;
        axis.bytes += static_cast<double>(event.bytes);
      }
    }
  }
  if (steps == 0) return {};
  for (AxisCommunication& axis : all) {
    axis.calls /= static_cast<double>(steps);
    axis.bytes /= static_cast<double>(steps);
  }
  for (const ExposedAxis& axis : kExposedAxes) {
    AxisCommunication& one = Find(axis.axis, all);
    for (const RankLedger& rank : ranks) {
      one.wait_seconds +=
          rank.parts.*axis.seconds / static_cast<double>(ranks.size());
    }
  }
  std::erase_if(all, [](const AxisCommunication& axis) {
    return axis.calls == 0 && axis.wait_seconds == 0;
  });
  return all;
}

}  // namespace rankwise
