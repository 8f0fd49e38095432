// The messages between parameter servers and workers, and the connections that
// carry them. Each pair of a server and a worker has a process group of its
// own: only Gloo and MPI can receive from any rank, and a rank that dies breaks
// only its own groups. All messages are in the host's memory, so that NCCL,
// which ends all ranks when one of them dies, is not needed.
//
//   worker to server   request, then with kPush one message per bucket and one
//                      of the model's buffers
//   server to worker   after kPull and kPush: reply, one message per bucket,
//                      and after kPull the first server's buffers; before it,
//                      replies with only `waiting` set, while the worker has
//                      to wait for others
#ifndef RANKWISE_PARALLEL_PARAMETER_SERVER_PROTOCOL_H_
#define RANKWISE_PARALLEL_PARAMETER_SERVER_PROTOCOL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "torch/csrc/distributed/c10d/Work.hpp"
#include "torch/types.h"

namespace rankwise {

// How far apart workers may be.
struct Consistency {
  // True (bulk synchronous): the mean of all workers' gradients of a round is
  // applied at once. False: each gradient is applied as it arrives.
  bool synchronous = true;
  // A worker continues when the slowest one is at most this number of rounds
  // behind it (Ho et al. 2013, "More Effective Distributed ML via a Stale
  // Synchronous Parallel Parameter Server", section 3).
  int64_t bound = 0;
};
// "bsp", "ssp:K" (ssp:0 is bsp) or "async"; InvalidArgument otherwise.
absl::StatusOr<Consistency> ParseConsistency(const std::string& text);

// A round of a worker is one push, counted from 1 in every run. A shard's
// version is the number of updates that it has had in the run.
struct Request {
  // kStep: a step without a push. kWaiting: another server has the worker wait;
  // sent several times per collective timeout, so that this does not look like
  // a dead worker.
  enum Kind : int64_t { kPull, kPush, kStep, kDone, kWaiting };
  int64_t kind = kPull;
  int64_t round = 0;
  // Of the parameters that the gradient was computed from.
  int64_t read_version = 0, read_round = 0;
  double learning_rate = 0;
  double loss = 0;  // mean over the steps since the last push
  // kStep and kPush: the step's own loss, and the worker's examples in it.
  double step_loss = 0;
  int64_t examples = 0;
};

struct Reply {
  bool ending = false;  // the job ends: send no more requests
  int64_t version = 0;
  int64_t round = 0;  // up to which all workers' updates are included
  // Where a worker that starts continues: optimizer steps done, the epoch, its
  // micro-batches done.
  int64_t step = 0, epoch = 1, position = 0;
  // The worker has to wait for others; only another reply follows. Sent several
  // times per collective timeout, so that waiting for other workers does not
  // look like a dead server.
  bool waiting = false;
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The connection between a server and a worker, shared by all copies. Different
// connections may be used concurrently, one connection may not. All calls throw
// what the process group throws.
class Link {
 public:
  // `interrupts_waits`: a thread interrupts all waits when the connection
  // breaks, for Gloo, which does not wake waits for partly transferred
  // messages. The process group must outlive all copies.
  Link(Group pair, bool interrupts_waits);

  int peer() const;  // its rank in the job
  // Start a message and append it to `works`; empty tensors are not sent. Tags
  // count from 0. The tensor must not change until the work is done.
  void Send(const at::Tensor& tensor, int tag, std::vector<WorkPtr>& works);
  void Receive(const at::Tensor& tensor, int tag, std::vector<WorkPtr>& works);
  // Throws if the connection is known to be broken; only Gloo's is while
  // nothing is in flight.
  void ThrowIfBroken() const;
  // Makes all that is in flight on this link fail, and what is started later.
  // May be called from another thread.
  void Abort();

 private:
  struct Connection;
  std::shared_ptr<Connection> connection_;
};

// Waits for all works and clears the list. Throws if a wait was interrupted
// and its message is not complete.
void WaitFor(std::vector<WorkPtr>& works);

// Requests and replies as messages.
inline constexpr int kHeaderTag = 0, kFirstBucketTag = 1;
at::Tensor EmptyHeader();  // fp64
at::Tensor ToHeader(const Request& request);
at::Tensor ToHeader(const Reply& reply);
Request RequestFrom(const at::Tensor& header);
Reply ReplyFrom(const at::Tensor& header);

// The ranks of a job: servers first.
struct ServerRanks {
  std::vector<Link> links;  // a server's by worker, a worker's by server
  Group own;                // of a server: all servers; a worker: itself alone
};
// Collective over all ranks of `comm`. From its end on the launcher lets the
// job go on without workers that end.
absl::StatusOr<ServerRanks> ConnectServers(Communicator& comm, int servers);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PARAMETER_SERVER_PROTOCOL_H_
