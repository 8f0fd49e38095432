#include "parallel/clock/clock_sync.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/types/span.h"
#include "parallel/comm/communicator.h"

namespace rankwise {
namespace {

constexpr int kRoundTrips = 10;
// Assumed bound of the drift between two quartz clocks.
constexpr double kDrift = 50e-6;

}  // namespace

ClockSync::ClockSync(Control& control, RankClock clock)
    : control_(&control), clock_(std::move(clock)) {
  Start();
}

ClockSync::ClockSync(Communicator* comm)
    : own_control_(comm != nullptr && comm->has_peers()
                       ? MakeGroupControl(comm->process_group())
                       : nullptr),
      control_(own_control_.get()),
      clock_(HostClock()) {
  if (control_ != nullptr) Start();
}

void ClockSync::Start() {
  // One shared clock is detected at a cost independent of the number of ranks.
  const auto largest = control_->Max({clock_.id, -clock_.id});
  const bool all_share = largest[0] == -largest[1] && largest[0] != 0;
  if (!all_share) FindForeign();
  Update();
}

void ClockSync::FindForeign() {
  const auto ids = control_->Gather(absl::MakeConstSpan(&clock_.id, 1));
  for (int rank = 1; rank < control_->world_size(); ++rank) {
    const bool shared = ids[rank][0] == ids[0][0] && ids[0][0] != 0;
    if (!shared) foreign_.push_back(rank);
  }
  if (std::find(foreign_.begin(), foreign_.end(), control_->rank()) !=
      foreign_.end()) {
    error_ = std::numeric_limits<double>::infinity();
  }
}

void ClockSync::Update() {
  for (const int rank : foreign_) {
    if (control_->rank() == 0) Serve(rank);
    if (control_->rank() == rank) MeasureOffset();
  }
}

double ClockSync::error_seconds() const {
  return error_ == 0 ? 0 : error_ + kDrift * (clock_.now() - estimated_);
}

void ClockSync::Serve(int rank) {
  for (int i = 0; i < kRoundTrips; ++i) {
    control_->Receive(rank);
    control_->Send(clock_.now(), rank);
  }
}

void ClockSync::MeasureOffset() {
  for (int i = 0; i < kRoundTrips; ++i) {
    const double sent = clock_.now();
    control_->Send(0, 0);
    const double answer = control_->Receive(0);
    const double answered = clock_.now();
    const double error = (answered - sent) / 2;
    if (error >= error_seconds()) continue;
    offset_ = answer - (sent + answered) / 2;
    error_ = error;
    estimated_ = answered;
  }
}

}  // namespace rankwise
