// The supported transformers: decoder blocks between a token embedding and a
// head, as built by trainers/models/gpt.cc.
#ifndef RANKWISE_ANALYSIS_PLAN_MODEL_H_
#define RANKWISE_ANALYSIS_PLAN_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise::plan {

struct Model {
  std::string name = "model";
  int64_t blocks = 0;
  int64_t width = 0;     // features between blocks; the MLP has 4 times as many
  int64_t heads = 0;     // divides `width`
  int64_t sequence = 0;  // tokens per example
  int64_t vocabulary = 0;    // number of token values
  bool tied_head = true;     // the head shares the token embedding's weights
  bool has_trainer = false;  // `name` is a --model_size of gpt

  // Per block: 12 w^2 for its four matrices, 9 w for their biases, 4 w for two
  // norms.
  double BlockWeights() const;
  double BlockParameters() const;
  double Parameters() const;
  // Forward FLOPs of one example; a multiply-add counts as 2, and all pairs of
  // tokens count (Chowdhery et al. 2022, "PaLM", appendix B).
  double BlockFlops() const;
  double HeadFlops() const;
  double ForwardFlops() const;
};

// InvalidArgument names the invalid number.
absl::Status CheckModel(const Model& model);

// Returns gpt's sizes in trainers/models/gpt.cc ("nano" to "gpt2"), and those
// of Korthikanti et al. 2022, table 3 ("megatron-22b", "gpt3-175b",
// "turing-530b", "megatron-1t").
std::vector<std::string> ModelNames();

// NotFound lists the known names.
absl::StatusOr<Model> NamedModel(absl::string_view name);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_MODEL_H_
