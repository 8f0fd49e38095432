// Which layers of a model become which stage, and which ranks work together.
#ifndef RANKWISE_TRAINERS_STAGE_SPLIT_H_
#define RANKWISE_TRAINERS_STAGE_SPLIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/mesh.h"
#include "trainers/models/model.h"
#include "trainers/pipeline_config.h"

namespace rankwise {

// Axes dp and pp; the ranks of one pipeline are consecutive. InvalidArgument
// where `world_size` is not config.ranks * config.replicas.
absl::StatusOr<MeshLayout> LayOutPipelines(const PipelineConfig& config,
                                           int world_size);

// `split` as in PipelineConfig, but for "time". InvalidArgument that names
// --split for more stages than layers, a cut outside the model, or a word that
// is none of these.
absl::StatusOr<std::vector<LayerRange>> SplitByFacts(const ModelSpec& model,
                                                     const std::string& split,
                                                     int num_stages);

// So that the costliest stage costs least.
absl::StatusOr<std::vector<LayerRange>> SplitByCosts(
    absl::Span<const double> layer_costs, int num_stages);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGE_SPLIT_H_
