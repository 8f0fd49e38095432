#include <set>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/sweep/refuse.h"

ABSL_FLAG(std::string, mesh, "",
          "axes with sizes, the last varies fastest: dp:2,tp:2");
ABSL_FLAG(std::string, axis, "",
          "axis of --mesh along which groups communicate");

namespace rankwise::comm_bench {
namespace {

// Parses "dp:2,tp:2".
absl::StatusOr<std::vector<MeshAxis>> ParseMesh(const std::string& text) {
  std::vector<MeshAxis> axes;
  std::set<std::string> names;
  for (const std::string& part : SplitNames(text)) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    MeshAxis& axis = axes.emplace_back(MeshAxis{words.first});
    if (axis.name.empty() || !absl::SimpleAtoi(words.second, &axis.size) ||
        axis.size < 1) {
      return Refuse("\"", part, "\" must be an axis with its size, such as ",
                    "tp:2");
    }
    if (!names.insert(axis.name).second)
      return Refuse(axis.name, " is given twice");
  }
  return axes;
}

}  // namespace

void ReadMesh(BenchConfig& config, FlagChecks& checks) {
  if (const std::string mesh = absl::GetFlag(FLAGS_mesh); !mesh.empty())
    config.mesh =
        ReadText<std::vector<MeshAxis>>("mesh", mesh, ParseMesh, {}, checks);
  config.axis = absl::GetFlag(FLAGS_axis);
}

}  // namespace rankwise::comm_bench
