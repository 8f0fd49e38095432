// The transformers that can be planned: decoder blocks between a token
// embedding and a head, as trainers/models/gpt.cc builds them.
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
  int64_t width = 0;       // features between blocks; the MLP has 4 times these
  int64_t heads = 0;       // divides `width`
  int64_t sequence = 0;    // tokens of an example
  int64_t vocabulary = 0;  // token values
  bool tied_head = true;   // the head's weights are the token embedding's
  bool has_trainer = false;  // `name` is a --model_size of gpt

  // Of a block: 12 w^2 of its four matrices, 9 w of their biases, 4 w of two
  // norms.
  double BlockWeights() const;
  double BlockParameters() const;
  double Parameters() const;
  // Forward of one example; a multiply-add counts as 2, and all pairs of tokens
  // count (Chowdhery et al. 2022, "PaLM", appendix B).
  double BlockFlops() const;
  double HeadFlops() const;
  double ForwardFlops() const;
};

// InvalidArgument names the number that is not possible.
absl::Status CheckModel(const Model& model);

// gpt's sizes in trainers/models/gpt.cc ("nano" to "gpt2"), and those of
// Korthikanti et al. 2022, table 3 ("megatron-22b", "gpt3-175b",
// "turing-530b", "megatron-1t").
std::vector<std::string> ModelNames();

// NotFound lists the known names.
absl::StatusOr<Model> NamedModel(absl::string_view name);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_MODEL_H_
