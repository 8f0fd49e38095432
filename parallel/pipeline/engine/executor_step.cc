#include "parallel/pipeline/engine/executor_step.h"

#include <algorithm>
#include <chrono>

#include "c10/util/Exception.h"

namespace rankwise {
namespace {

// In seconds of the steady clock: from the anchor to `start`, and from there by
// the device's clock alone.
class HostClock {
 public:
  HostClock(const DeviceEvent& start, const HostAnchor& anchor)
      : start_(start) {
    if (!start.device().is_cpu()) start_seconds_ = anchor.HostSeconds(start);
  }

  double operator()(const DeviceEvent& moment) const {
    if (moment.device().is_cpu()) {
      return std::chrono::duration<double>(moment.given().time_since_epoch())
          .count();
    }
    const std::optional<double> since = SecondsBetween(start_, moment);
    TORCH_CHECK(start_seconds_.has_value() && since.has_value(),
                "the times of a step were read before ", moment.device(),
                " had run it");
    return *start_seconds_ + *since;
  }

 private:
  const DeviceEvent& start_;
  std::optional<double> start_seconds_;  // none on a CPU
};

}  // namespace

void ExecutorStep::Read(const HostAnchor& anchor) {
  if (has_times()) return;
  events->end->Wait();
  const HostClock clock(events->start, anchor);
  start_seconds = clock(events->start);
  end_seconds = clock(*events->end);
  for (size_t i = 0; i < spans.size(); ++i) {
    spans[i].start_seconds = clock(*events->spans[i].first);
    spans[i].end_seconds = clock(*events->spans[i].second);
  }
  // Stages with streams of their own may start in another order than the
  // host's.
  if (!events->start.device().is_cpu()) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) {
                       return a.start_seconds < b.start_seconds;
                     });
  }
  events.reset();
}

double ExecutorStep::wait_seconds() const {
  double sum = 0;
  for (const MessageWait& wait : waits) sum += wait.seconds.Wait();
  return sum;
}

}  // namespace rankwise
