#include "parallel/pipeline/engine/executor_step.h"

#include <algorithm>

namespace rankwise {

void ExecutorStep::Read(const HostAnchor& anchor) {
  if (has_times()) return;
  events->end->Wait();
  const DeviceEvent& start = events->start;
  start_seconds = *anchor.HostSeconds(start);
  const auto seconds = [&](const DeviceEvent& event) {
    return start_seconds + WaitForSecondsBetween(start, event);
  };
  end_seconds = seconds(*events->end);
  for (size_t i = 0; i < spans.size(); ++i) {
    spans[i].start_seconds = seconds(*events->spans[i].first);
    spans[i].end_seconds = seconds(*events->spans[i].second);
  }
  // Stages with streams of their own may start in another order than the
  // host's.
  if (!start.device().is_cpu()) {
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
