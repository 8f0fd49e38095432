#include "comm_bench/sweep/lines.h"

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm_bench/sweep/refuse.h"
#include "parallel/comm/mesh.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Returns "dp:2,tp:2".
std::string AsFlag(const std::vector<MeshAxis>& mesh) {
  return absl::StrJoin(mesh, ",", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, axis.name, ":", axis.size);
  });
}

absl::Status CheckTogether(const BenchConfig& config) {
  if (config.axis.empty() && !config.mesh.empty()) {
    return Refuse("--mesh=", AsFlag(config.mesh),
                  ": needs --axis, the one to measure along");
  }
  if (config.mesh.empty()) {
    return Refuse("--axis=", config.axis,
                  ": needs --mesh, the axes with their sizes, such as ",
                  "--mesh=dp:2,tp:2");
  }
  if (config.group_size != 0)
    return Refuse("--axis and --group_size: give one of them");
  return absl::OkStatus();
}

// Returns the axes with several ranks.
std::vector<MeshAxis> Divided(std::vector<MeshAxis> mesh) {
  std::erase_if(mesh, [](const MeshAxis& axis) { return axis.size == 1; });
  return mesh;
}

// Checks that the mesh has all ranks, and that the axis is one of its axes with
// several ranks.
absl::Status CheckFits(const BenchConfig& config, int world_size) {
  double ranks = 1;  // precise up to any valid world size
  const MeshAxis* found = nullptr;
  std::vector<std::string> fitting;
  for (const MeshAxis& axis : config.mesh) {
    ranks *= axis.size;
    if (axis.name == config.axis) found = &axis;
    if (axis.size > 1) fitting.push_back(axis.name);
  }
  const std::string mesh = absl::StrCat("--mesh=", AsFlag(config.mesh));
  if (ranks != world_size) {
    return Refuse(mesh, ": the product of the sizes is ", ranks,
                  ", but the job has ", Counted(world_size, "rank"),
                  " (--nproc)");
  }
  if (found != nullptr && found->size > 1) return absl::OkStatus();
  return Refuse("--axis=", config.axis, ": ",
                found == nullptr ? "is no axis of " : "has one rank in ", mesh,
                "; axes of several ranks: ",
                fitting.empty() ? "none" : absl::StrJoin(fitting, ", "));
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int>>> GroupsOf(
    const BenchConfig& config, int world_size) {
  const int size = config.group_size;
  ASSIGN_OR_RETURN(auto groups, LinesOf(config, world_size));
  if (size > 0 && world_size % size != 0) {
    return Refuse("--group_size=", size, ": does not divide the ",
                  Counted(world_size, "rank"));
  }
  for (int rank = 0; size > 0 && rank < world_size; ++rank) {
    if (rank % size == 0) groups.emplace_back();
    groups.back().push_back(rank);
  }
  if (groups.size() == 1) groups.clear();
  return groups;
}

absl::StatusOr<std::vector<std::vector<int>>> LinesOf(const BenchConfig& config,
                                                      int world_size) {
  std::vector<std::vector<int>> lines;
  if (config.mesh.empty() && config.axis.empty()) {
    if (config.lines == "both") return lines;
    return Refuse("--lines: needs --axis");
  }
  RETURN_IF_ERROR(CheckTogether(config));
  RETURN_IF_ERROR(CheckFits(config, world_size));
  ASSIGN_OR_RETURN(const MeshLayout layout,
                   MeshLayout::Create(config.mesh, world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    if (layout.coordinate(config.axis, rank) == 0)
      lines.push_back(layout.Line(config.axis, rank));
  }
  return lines;
}

absl::StatusOr<BenchConfig> OnRecordedMesh(BenchConfig config,
                                           const RecordedTraffic& traffic) {
  const bool along_axis = !config.mesh.empty() || !config.axis.empty();
  if (traffic.mesh.empty() || !along_axis) return config;
  std::vector<MeshAxis> recorded;
  for (const RecordedAxis& axis : traffic.mesh)
    recorded.push_back({axis.name, static_cast<int>(axis.size)});
  if (config.mesh.empty() ||
      AsFlag(Divided(config.mesh)) == AsFlag(Divided(recorded))) {
    config.mesh = recorded;
    return config;
  }
  return Refuse("--mesh=", AsFlag(config.mesh), ": ", traffic.file,
                " was recorded on ", AsFlag(recorded),
                "; leave out --mesh, which the recording states");
}

absl::Status KeepLines(const std::vector<std::vector<int>>& lines,
                       RecordedTraffic& traffic) {
  std::set<std::vector<int64_t>> along, others;
  for (const std::vector<int>& line : lines)
    along.insert({line.begin(), line.end()});
  size_t kept = 0;
  for (std::vector<TrafficRecord>& step : traffic.steps) {
    for (TrafficRecord& record : step) {
      std::erase_if(record.events, [&](const RecordedTransfer& event) {
        std::vector<int64_t> ranks = GroupOf(event, step.size());
        if (along.contains(ranks)) return false;
        others.insert(std::move(ranks));
        return true;
      });
      kept += record.events.size();
    }
  }
  if (kept > 0) return absl::OkStatus();
  const auto group = [](std::string* out, const std::vector<int64_t>& ranks) {
    absl::StrAppend(out, "{", absl::StrJoin(ranks, ","), "}");
  };
  return Refuse(traffic.file,
                ": no group along --axis communicated; those that did: ",
                others.empty() ? "none" : absl::StrJoin(others, " ", group));
}

}  // namespace rankwise::comm_bench
