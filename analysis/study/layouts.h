// Layouts of ranks, the trainer that carries each, and what can be cut so.
#ifndef RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_
#define RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/prediction/layout.h"

namespace rankwise {

struct StudyConfig;

// The trainer that carries an item of --layouts.
std::string TrainerOf(const Layout& layout);

// Whether a study runs the layout with `world_size` ranks. A layout without
// mesh axes runs at every world size.
bool IsAt(const Layout& layout, int64_t world_size);

// "ddp,zero3,tp2,pp2xtp2". ddp and zero1 to zero3 are run at every
// world size. A mesh is run at the size that it has: by ddp, tensor_parallel or
// pipeline where it has one axis that they carry, else by hybrid.
// InvalidArgument for an unknown axis, one that comes twice, a size below
// 2, a layout that occurs twice, and none at all.
absl::StatusOr<std::vector<Layout>> ParseLayouts(absl::string_view text);

// Those of --layouts=auto: ddp, zero2, zero3, and at every world size each mesh
// with at most two axes that
// - the model can be cut along: tp within one host, and only layers that
//   divide; cp only gpt; of gpt's own sizes, heads, tokens and blocks that are
//   enough; no more stages than layers, where these are known;
// - divides the batch.
// What is not known here is left to the trainer to refuse.
std::vector<Layout> AllLayouts(const StudyConfig& config);

// 2 ranks along tp, which communicates most, then 2 along pp, and what is left
// along dp; an axis that does not divide what is left is left out.
Layout DefaultLayout(int64_t world_size);

// The meshes of hybrid with that many ranks: those of config.layouts, or the
// default one where that is empty.
std::vector<Layout> LayoutsOf(const StudyConfig& config, int64_t world_size);

// A step's, per dp coordinate: 1 for a layout without stages.
int64_t MicroBatches(const StudyConfig& config, const Layout& layout);

// Fails with a message that names the flag to change where a layout does not
// fit the world sizes or the batch, and where tensor parallelism is asked for
// of a model without layers that it can cut.
absl::Status CheckLayouts(const StudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_
