#include "trainers/loop/divergence.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "parallel/comm/communicator.h"

namespace rankwise {

int64_t NonFiniteStepsToDiverge(Precision precision) {
  // A step that fp16's loss scaling skips changes no parameter, so the loss of
  // a batch that overflows is followed by finite ones in a healthy run.
  return precision == Precision::kFp16 ? 20 : 1;
}

std::string NonFiniteText(double value) {
  return std::isnan(value) ? "nan" : absl::StrFormat("%g", value);
}

std::string Describe(const NonFinite& found) {
  return absl::StrFormat("the %s of step %d is %s on rank %d",
                         found.is_gradient_norm ? "gradients' norm" : "loss",
                         found.step, NonFiniteText(found.value), found.rank);
}

absl::StatusOr<DivergenceCheck> DivergenceCheck::Create(
    const TrainConfig& config, const Worker& worker) {
  DivergenceCheck check;
  const Communicator* const comm = worker.comm;
  const bool alone = comm == nullptr || comm->world_size() == 1;
  const bool exchanges =
      alone || (comm->has_peers() && !config.skip_communication);
  check.stops_ = config.on_nan == OnNan::kStop && exchanges;
  if (!check.stops_ || alone) return check;
  check.control_ = MakeGroupControl(comm->process_group());
  const auto log_every = static_cast<double>(config.output.log_every);
  const auto all = check.control_->Gather({log_every});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == log_every) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "--log_every=%g on rank %d, and %g on rank %d: ranks compare their "
        "losses when they log them; give all ranks the same --log_every",
        log_every, worker.env.rank, all[rank][0], rank));
  }
  return check;
}

NonFinite DivergenceCheck::First(const NonFinite& mine) {
  if (control_ == nullptr) return mine;
  NonFinite first;
  const auto all = control_->Gather(
      {static_cast<double>(mine.step), static_cast<double>(mine.rank),
       mine.is_gradient_norm ? 1.0 : 0.0, mine.value});
  for (const std::vector<double>& theirs : all) {
    const auto step = static_cast<int64_t>(theirs[0]);
    if (step == 0 || (first.step > 0 && first.step <= step)) continue;
    first = {step, static_cast<int>(theirs[1]), theirs[2] > 0, theirs[3]};
  }
  return first;
}

}  // namespace rankwise
