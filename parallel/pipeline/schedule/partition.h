// Where to cut a model's layers into stages.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_PARTITION_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_PARTITION_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rankwise {

// The first layer of every stage but the first: {2, 5} cuts 8 layers into
// [0, 2), [2, 5), [5, 8).
using Cuts = std::vector<size_t>;

// Contiguous, none empty, with the least possible cost of the costliest stage;
// exact, by dynamic programming. Of equally good cuts the later one.
// InvalidArgument with both numbers for more stages than layers, or a cost that
// is negative or not finite.
absl::StatusOr<Cuts> BalanceLayers(absl::Span<const double> layer_costs,
                                   size_t num_stages);

// "2,5": for a model of `num_layers` into `num_stages`. InvalidArgument that
// names the cut: outside the model, not ascending, not a number, too few or too
// many.
absl::StatusOr<Cuts> ParseCuts(absl::string_view text, size_t num_layers,
                               size_t num_stages);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_PARTITION_H_
