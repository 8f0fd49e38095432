// Messages between parameter servers and workers, and the connections that
// carry them. Each server-worker pair has its own process group: only Gloo and
// MPI can receive from any rank, and the death of a rank breaks only its own
// groups. All messages are in host memory, which avoids NCCL; NCCL ends all
// ranks when one of them dies.
//
//   worker to server   request; after kPush one message per bucket and one with
//                      the model's buffers
//   server to worker   after kPull and kPush: reply, one message per bucket,
//                      and after kPull the first server's buffers; before it,
//                      replies with only `waiting` set while the worker has to
//                      wait for others
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

// The permitted distance between workers.
struct Consistency {
  // If true (bulk synchronous), applies the mean of all workers' gradients of a
  // round at once; if false, applies each gradient on arrival.
  bool synchronous = true;
  // Maximum number of rounds that a worker may be ahead of the slowest one (Ho
  // et al. 2013, "More Effective Distributed ML via a Stale Synchronous
  // Parallel Parameter Server", section 3).
  int64_t bound = 0;
};
// Parses "bsp", "ssp:K" (ssp:0 is bsp) or "async"; else returns
// InvalidArgument.
absl::StatusOr<Consistency> ParseConsistency(const std::string& text);

// A round of a worker is one push, counted from 1 in every run. A shard's
// version is its number of updates in the run.
struct Request {
  // kStep: a step without a push. kWaiting: another server makes the worker
  // wait; sent several times per collective timeout, so that the worker does
  // not appear dead.
  enum Kind : int64_t { kPull, kPush, kStep, kDone, kWaiting };
  int64_t kind = kPull;
  int64_t round = 0;
  // Version and round of the parameters from which the gradient was computed.
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
  int64_t round = 0;  // round up to which all workers' updates are included
  // Position at which a starting worker continues: completed optimizer steps,
  // the epoch, and its completed micro-batches.
  int64_t step = 0, epoch = 1, position = 0;
  // The worker has to wait for others; only another reply follows. Sent several
  // times per collective timeout, so that the server does not appear dead.
  bool waiting = false;
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The connection between a server and a worker, shared by all copies. Different
// connections may be used concurrently, a single one may not. All calls throw
// the process group's exceptions.
class Link {
 public:
  // `interrupts_waits`: a thread interrupts all waits when the connection
  // breaks; for Gloo, which does not wake waits for partially transferred
  // messages. The process group must outlive all copies.
  Link(Group pair, bool interrupts_waits);

  int peer() const;  // rank in the job
  // Start a message and append it to `works`; empty tensors are not sent. Tags
  // start at 0. The tensor must not change until the work completes.
  void Send(const at::Tensor& tensor, int tag, std::vector<WorkPtr>& works);
  void Receive(const at::Tensor& tensor, int tag, std::vector<WorkPtr>& works);
  // Throws if the connection is known to be broken; while nothing is in flight,
  // only a Gloo connection can be.
  void ThrowIfBroken() const;
  // Fails all messages of this link in flight and all later ones. May be called
  // from another thread.
  void Abort();

 private:
  struct Connection;
  std::shared_ptr<Connection> connection_;
};

// Blocks until all works complete, and clears the list. Throws if a wait was
// interrupted before its message was complete.
void WaitFor(std::vector<WorkPtr>& works);

// Requests and replies as messages.
inline constexpr int kHeaderTag = 0, kFirstBucketTag = 1;
at::Tensor EmptyHeader();  // fp64
at::Tensor ToHeader(const Request& request);
at::Tensor ToHeader(const Reply& reply);
Request RequestFrom(const at::Tensor& header);
Reply ReplyFrom(const at::Tensor& header);

// The ranks of a job; the servers come first.
struct ServerRanks {
  std::vector<Link> links;  // by worker on a server, by server on a worker
  Group own;                // on a server: all servers; on a worker: itself
};
// Collective over all ranks of `comm`. Afterwards the launcher lets the job
// continue when workers exit.
absl::StatusOr<ServerRanks> ConnectServers(Communicator& comm, int servers);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PARAMETER_SERVER_PROTOCOL_H_
