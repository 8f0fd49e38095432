// How the trainer hybrid lays its ranks out, and what can be cut so.
#ifndef RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_
#define RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

struct StudyConfig;

// Ranks along each axis of the mesh.
struct MeshShape {
  int64_t pp = 1, dp = 1, cp = 1, tp = 1;

  int64_t ranks() const { return pp * dp * cp * tp; }
  std::string Name() const;  // "pp2xtp2"; "" for one rank
  friend auto operator<=>(const MeshShape&, const MeshShape&) = default;
};

// "tp2,pp2xtp2"; "" is none. InvalidArgument for an unknown axis, one that
// comes twice, or a size below 2.
absl::StatusOr<std::vector<MeshShape>> ParseLayouts(absl::string_view text);

// 2 ranks along tp, which communicates most, then 2 along pp, and what is left
// along dp; an axis that does not divide what is left is left out.
MeshShape DefaultLayout(int64_t world_size);

// Those of config.hybrid_layouts with that many ranks; the default one where
// there are none at all.
std::vector<MeshShape> LayoutsOf(const StudyConfig& config, int64_t world_size);

// A step's, per dp coordinate: 1 for a layout without stages.
int64_t MicroBatches(const StudyConfig& config, const MeshShape& layout);

// Fails with a message that names the flag to change where a layout does not
// fit the world sizes or the batch, and where tensor parallelism is asked for
// of a model without layers that it can cut.
absl::Status CheckLayouts(const StudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_
