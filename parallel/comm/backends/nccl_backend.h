// NCCL, behind a header without CUDA: nccl_backend_cuda.cc, or, in a build
// without CUDA, nccl_backend_none.cc, which refuses.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_NCCL_BACKEND_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_NCCL_BACKEND_H_

#include <functional>
#include <string>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace rankwise {

// MakeNccl (backends.h) gives a ProcessGroupNCCL bound to its device and
// connected to all ranks of the group on return, by a barrier: ranks that do
// not come, and GPUs that cannot reach each other, are found here and not in
// the first step. Not by eagerConnectSingleDevice, as
// init_process_group(device_id=...) does: it makes all messages of the group
// share one stream with its collectives (ProcessGroupNCCL.hpp, eagerInit_), and
// a pipeline stage would wait for its predecessor with what it has for its
// successor. Two ranks connect for messages when they first exchange one.
//
// With a `parent` the connections are split from its own (ncclCommSplit); then
// all ranks of the parent make a group at the same time, each its own.
//
// `collective_timeout` is after which c10d's own watchdog ends the process with
// its own report: the fallback of Watchdog, whose timeout is shorter.
// `high_priority_stream` is also asked for by TORCH_NCCL_HIGH_PRIORITY=1.
//
// Unavailable, with what NCCL says, when the others cannot be reached,
// DeadlineExceeded when they have not connected within `connect_timeout` (the
// attempt goes on until the process ends); Unimplemented in a build without
// CUDA.
//
// The environment's NCCL_* and TORCH_NCCL_* variables are NCCL's and c10d's
// own, and but for PrepareForNccl's left alone (ProcessGroupNCCL.hpp lists
// c10d's). Those that matter:
//   NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME     what NCCL does, over which network
//   TORCH_NCCL_ENABLE_TIMING=1              flight recorders know whether a
//                                           collective has begun on the GPU
//   TORCH_FR_BUFFER_SIZE=2000               calls that they hold; 0: none
//   TORCH_NCCL_BLOCKING_WAIT=1              the host waits for collectives, and
//                                           c10d's watchdog does not run
//   TORCH_NCCL_ASYNC_ERROR_HANDLING=3       how c10d's watchdog ends a process
//   TORCH_NCCL_DUMP_ON_TIMEOUT, TORCH_NCCL_ENABLE_MONITORING,
//   TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480    what it writes then, and who looks
//                                           after the watchdog itself

// For main() (PrepareRankProcess calls it), before any other thread: sets
// TORCH_NCCL_RETHROW_CUDA_ERRORS=0 unless the environment has it; c10d has no
// option for it. After a CUDA error c10d's watchdog, too, fails when it polls
// the GPU, and by default throws that out of its thread, which is SIGABRT,
// before Watchdog has told what happened. Nothing without CUDA.
void PrepareForNccl();

// What can be asked about the end of `work` without keeping its tensors alive:
// a copy, as c10d's watchdog holds it. Works that are not NCCL's, and null, are
// given back.
c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work);

// Calls `ask`, in which a GPU may be asked how far it is although another
// thread is recording a graph on it (cudaThreadExchangeStreamCaptureMode).
void BesideCaptures(c10::Device device, const std::function<void()>& ask);

// NCCL's flight recorder of this process as JSON; "" without CUDA. Asks the
// GPU, and may not return when that hangs.
std::string DumpNcclRecorder();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_NCCL_BACKEND_H_
