// The unit of a throughput: tokens of token models, images of image models,
// examples of all others.
#ifndef RANKWISE_RECORDS_EXAMPLE_UNIT_H_
#define RANKWISE_RECORDS_EXAMPLE_UNIT_H_

#include <cstdint>
#include <string>

namespace rankwise {

// The fields `example` and `tokens_per_example` of a RunRecord.
struct ExampleUnit {
  std::string example;             // "image", "sequence", or ""
  int64_t tokens_per_example = 0;  // 0 if not a token sequence

  std::string RateName() const {
    if (tokens_per_example > 0) return "tokens/s";
    return example == "image" ? "images/s" : "examples/s";
  }
  // Converts to the unit of RateName().
  double Rate(double examples_per_second) const {
    return tokens_per_example > 0
               ? examples_per_second * static_cast<double>(tokens_per_example)
               : examples_per_second;
  }
  bool operator==(const ExampleUnit&) const = default;
};

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_EXAMPLE_UNIT_H_
