// A c10d backend that notes every call in a CollectiveLog.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_MONITORED_BACKEND_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_MONITORED_BACKEND_H_

#include <memory>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/watchdog.h"

namespace c10d {
class Backend;
}  // namespace c10d

namespace rankwise {

// How the ends of calls are learnt.
struct Monitoring {
  int group = 0;  // the log's number of it
  // Null: ends are learnt from futures and waits, for backends whose futures
  // complete with the collective (gloo, fake). Otherwise the watchdog polls the
  // works: for NCCL, whose futures complete at launch. What is started while a
  // graph is captured on `device` does not run then and is not followed.
  std::shared_ptr<Watchdog> watchdog = nullptr;
  c10::Device device = c10::kCPU;
};

// Forwards the Work objects of `inner` unchanged, except for those without
// futures, without a watchdog. As thread-safe as `inner`; adds about 0.1 us to
// a collective (monitored_backend_benchmark).
c10::intrusive_ptr<c10d::Backend> MakeMonitoredBackend(
    c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveLog> log,
    Monitoring monitoring = {});

// The `inner` of such a backend, to measure what monitoring costs; else
// `backend` itself.
c10::intrusive_ptr<c10d::Backend> WithoutMonitoring(
    const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_MONITORED_BACKEND_H_
