#include "parallel/pipeline/step_in_flight.h"

#include <algorithm>
#include <chrono>

#include "c10/util/Exception.h"

namespace rankwise {

NearMoments::NearMoments(const Moment& near, const HostAnchor& anchor)
    : near_(near) {
  if (!near.device().is_cpu()) near_seconds_ = anchor.HostSeconds(near);
}

double NearMoments::HostSeconds(const Moment& moment) const {
  if (moment.device().is_cpu()) {
    return std::chrono::duration<double>(moment.given().time_since_epoch())
        .count();
  }
  const std::optional<double> since = SecondsBetween(near_, moment);
  TORCH_CHECK(near_seconds_.has_value() && since.has_value(),
              "the times of a step were read before ", moment.device(),
              " had run it");
  return *near_seconds_ + *since;
}

ExecutorStep StepInFlight::Read(const HostAnchor& anchor) const {
  const NearMoments times(*start, anchor);
  ExecutorStep step;
  step.loss = loss;
  step.start_seconds = times.HostSeconds(*start);
  step.end_seconds = times.HostSeconds(*end);
  for (const TimedAction& timed : actions)
    step.spans.push_back({timed.action, times.HostSeconds(*timed.start),
                          times.HostSeconds(*timed.end)});
  // Stages with streams of their own may start in another order than the
  // host's.
  if (!start->device().is_cpu()) {
    std::stable_sort(step.spans.begin(), step.spans.end(),
                     [](const Span& a, const Span& b) {
                       return a.start_seconds < b.start_seconds;
                     });
  }
  for (const TimedWait& wait : waits)
    step.waits.push_back({wait.bytes, times.HostSeconds(wait.end) -
                                          times.HostSeconds(wait.start)});
  step.peak_activations = peak_activations;
  step.sent_bytes = sent_bytes;
  step.received_bytes = received_bytes;
  return step;
}

ExecutorStep WaitFor(const StepInFlight& step) {
  step.end->Wait();
  return step.Read(HostAnchor(step.end->device()));
}

}  // namespace rankwise
