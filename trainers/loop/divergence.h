// Whether a run has diverged (--on_nan), decided by all ranks together.
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

// The number of steps in a row without a finite loss with which a run has
// diverged.
int64_t NonFiniteStepsToDiverge(Precision precision);

// "nan", whose sign is meaningless, "inf" or "-inf".
std::string NonFiniteText(double value);

// "the loss of step 2 is nan on rank 0".
std::string Describe(const NonFinite& found);

class DivergenceCheck {
 public:
  // Collective. InvalidArgument if ranks that compare their losses do not log
  // them at the same steps.
  static absl::StatusOr<DivergenceCheck> Create(const TrainConfig& config,
                                                const Worker& worker);

  // Whether a run that has diverged ends: under OnNan::kStop, unless its ranks
  // exchange nothing, so that the losses are not those of training.
  bool stops() const { return stops_; }

  // Whether First() is collective.
  bool compares_ranks() const { return control_ != nullptr; }

  // If ranks compare, that of the earliest step on any rank, the same on all of
  // them; otherwise `mine`.
  NonFinite First(const NonFinite& mine);

 private:
  bool stops_ = true;
  std::unique_ptr<Control> control_;  // null if ranks do not compare
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_DIVERGENCE_H_
