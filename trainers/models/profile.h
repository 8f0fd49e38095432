// What each layer of a model costs, measured, and a table of the stages that a
// model is cut into.
#ifndef RANKWISE_TRAINERS_MODELS_PROFILE_H_
#define RANKWISE_TRAINERS_MODELS_PROFILE_H_

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "trainers/models/model.h"

namespace rankwise {

// One layer and one batch; times are medians.
struct LayerProfile {
  double forward_seconds = 0;
  double backward_seconds = 0;  // of input and weights; 0 where neither has any
};

// Runs each layer `repetitions` (>= 1) times, forward and backward, after one
// run that is not counted, on `batch`, the model's input on its device. Clears
// the gradients. Throws what torch throws.
std::vector<LayerProfile> ProfileLayers(Model& model,
                                        const torch::Tensor& batch,
                                        int repetitions);

// Of the output of the layers of `stage` for `examples` examples.
int64_t OutputBytes(const ModelSpec& spec, const LayerRange& stage,
                    int64_t examples, torch::ScalarType type = torch::kFloat);

// One line per stage, for people: its layers, parameters, a micro-batch's bytes
// of output and forward FLOPs, and, with a `profile` of all layers, forward and
// backward time. A tied weight counts in the stage that owns it.
// `output_types`: of each stage; empty: fp32.
std::string StageTable(const ModelSpec& spec,
                       absl::Span<const LayerRange> stages,
                       int64_t micro_batch_examples,
                       absl::Span<const LayerProfile> profile = {},
                       absl::Span<const torch::ScalarType> output_types = {});

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_PROFILE_H_
