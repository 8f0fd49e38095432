// Detects that a run has diverged (--on_nan), by agreement of all ranks.
#ifndef RANKWISE_TRAINERS_LOOP_DIVERGENCE_H_
#define RANKWISE_TRAINERS_LOOP_DIVERGENCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/comm/control.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/observe/step_log.h"

namespace rankwise {

// Returns the number of consecutive steps without a finite loss after which a
// run counts as diverged.
int64_t NonFiniteStepsToDiverge(Precision precision);

// Returns "nan" (regardless of its sign), "inf" or "-inf".
std::string NonFiniteText(double value);

// "the loss of step 2 is nan on rank 0".
std::string Describe(const NonFinite& found);

class DivergenceCheck {
 public:
  // Collective. InvalidArgument if ranks that compare their losses do not log
  // them at the same steps.
  static absl::StatusOr<DivergenceCheck> Create(const TrainConfig& config,
                                                const Worker& worker);

  // Returns whether a diverged run ends: under OnNan::kStop, unless its ranks
  // exchange nothing, in which case the losses are not those of training.
  bool stops() const { return stops_; }

  // Returns whether First() is collective.
  bool compares_ranks() const { return control_ != nullptr; }

  // Returns the earliest non-finite value of any rank, identical on all of
  // them, if ranks compare; otherwise `mine`.
  NonFinite First(const NonFinite& mine);

 private:
  bool stops_ = true;
  std::unique_ptr<Control> control_;  // nullptr if ranks do not compare
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_DIVERGENCE_H_
