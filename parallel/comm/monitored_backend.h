// A c10d backend that hands every call to another one and notes it in a
// CollectiveLog on the way.
#ifndef RANKWISE_PARALLEL_COMM_MONITORED_BACKEND_H_
#define RANKWISE_PARALLEL_COMM_MONITORED_BACKEND_H_

#include <memory>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/collective_watch.h"

namespace c10d {
class Backend;
}  // namespace c10d

namespace rankwise {

enum class WatchCompletion {
  // Learn of each collective's end through its future, and of a message's
  // through the wait for it: for backends whose futures complete with the
  // collective (gloo, fake).
  kYes,
  // Only starts are logged.
  kNo,
  // Have a CollectiveWatch ask the works: for NCCL, whose futures complete at
  // launch. What is started while a graph records on the device is not
  // followed: it does not run then, and its work must not be asked.
  kAsked,
};

// Of WatchCompletion::kAsked.
struct Asking {
  std::shared_ptr<CollectiveWatch> watch;
  c10::Device device = c10::kCPU;
};

// The returned backend forwards the Work objects of `inner` unchanged, except
// for send and recv where completion is watched: their end is learnt from who
// waits for them. It is as thread-safe as `inner`, and adds about 0.1 us to a
// collective (monitored_backend_benchmark). `group` is the log's number of it.
c10::intrusive_ptr<c10d::Backend> MakeMonitoredBackend(
    c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveLog> log,
    WatchCompletion watch, int group = 0, Asking asking = {});

// The `inner` of such a backend, for those who measure what monitoring costs;
// any other backend itself.
c10::intrusive_ptr<c10d::Backend> WithoutMonitoring(
    const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_MONITORED_BACKEND_H_
