// Layouts of ranks, the trainer that runs each, and the models that support
// them.
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

// Returns the trainer that runs an item of --layouts.
std::string TrainerOf(const Layout& layout);

// Whether a study runs the layout with `world_size` ranks. A layout without
// mesh axes runs at every world size.
bool IsAt(const Layout& layout, int64_t world_size);

// Parses "ddp,zero3,tp2,pp2xtp2". ddp and zero1 to zero3 run at every world
// size. A mesh runs at its own size: with ddp, tensor_parallel or pipeline if
// it has a single axis that they support, else with hybrid. InvalidArgument for
// an unknown or repeated axis, a size below 2, a repeated layout, and an empty
// list.
absl::StatusOr<std::vector<Layout>> ParseLayouts(absl::string_view text);

// Returns the layouts of --layouts=auto: ddp, zero2, zero3, and, at every world
// size, each mesh with at most two axes that
// - the model supports: tp within one host, and only if the layers divide; cp
//   only for gpt; for gpt's own sizes, enough heads, tokens and blocks; no more
//   stages than layers, if these are known;
// - divides the batch.
// The trainer rejects what cannot be checked here.
std::vector<Layout> AllLayouts(const StudyConfig& config);

// Returns 2 ranks along tp, which communicates most, then 2 along pp, and the
// rest along dp; omits an axis that does not divide the remaining ranks.
Layout DefaultLayout(int64_t world_size);

// Returns hybrid's meshes with this number of ranks: those of config.layouts,
// or the default one if that is empty.
std::vector<Layout> LayoutsOf(const StudyConfig& config, int64_t world_size);

// Returns the micro-batches per step and dp coordinate: 1 for a layout without
// stages.
int64_t MicroBatches(const StudyConfig& config, const Layout& layout);

// Fails, naming the flag to change, if a layout does not fit the world sizes or
// the batch, or if tensor parallelism is requested for a model without layers
// that it can divide.
absl::Status CheckLayouts(const StudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_LAYOUTS_H_
