// All-reduces of little data for the price of their messages.
//
// Gloo's all-reduce of a few KiB between two ranks sends 24 messages through a
// queue, a worker and an epoll thread that competes with the sender for a lock;
// docs/gloo-small-all-reduce.md shows what that costs. Here each rank sends and
// receives log2(ranks) messages in the calling thread.
#ifndef RANKWISE_PARALLEL_COMM_DIRECT_ALL_REDUCE_H_
#define RANKWISE_PARALLEL_COMM_DIRECT_ALL_REDUCE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/direct_links.h"

namespace c10d {
struct AllreduceOptions;
class Store;
class Work;
}  // namespace c10d

namespace rankwise {

// What a rank does with one peer at one point of an all-reduce.
struct ReduceStep {
  int peer = 0;
  bool send = false;
  enum class Receive { kNothing, kReduce, kCopy };
  Receive receive = Receive::kNothing;
};

// Recursive doubling (Thakur, Rabenseifner and Gropp 2005, section 4.3): in
// round i, ranks at distance 2^i exchange what they have so far. Where `size`
// is no power of two, the first ranks fold in pairs before and unfold after.
std::vector<ReduceStep> ReduceSteps(int rank, int size);

struct DirectAllReduceConfig {
  int rank = 0;  // in the group
  int size = 1;
  std::string address;    // of this rank, numeric
  int64_t max_bytes = 0;  // the same on all ranks
  std::chrono::milliseconds timeout{0};
};

// The all-reduces of one group. They are started in the same order on all
// ranks, as all collectives; that order is theirs alone, so that others may be
// in flight beside them. The result has the same bits on all ranks.
class DirectAllReduce {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Connects to those ranks that this one exchanges with. Collective over the
  // group; `store` is a part for this purpose alone.
  static absl::StatusOr<std::unique_ptr<DirectAllReduce>> Create(
      const DirectAllReduceConfig& config, c10d::Store& store);

  // Fails what is in flight.
  ~DirectAllReduce();
  DirectAllReduce(const DirectAllReduce&) = delete;
  DirectAllReduce& operator=(const DirectAllReduce&) = delete;

  // One contiguous CPU tensor of at most max_bytes, of floating-point or
  // integer type, by sum, product, minimum, maximum, or (floating-point only)
  // average: what all ranks agree on when they make the same call.
  bool Takes(const std::vector<at::Tensor>& tensors,
             const c10d::AllreduceOptions& options) const;

  // Reduces in place. As long as peers are punctual it has ended on return;
  // what waits for a late one goes on in a thread. Errors come out of the
  // result. Any thread may call.
  WorkPtr Start(std::vector<at::Tensor>& tensors,
                const c10d::AllreduceOptions& options);

  // Fails what is in flight, here and on the peers, and all that follow.
  void Abort() { links_->Shutdown(); }

 private:
  struct Operation;
  using OperationPtr = std::shared_ptr<Operation>;
  using TimePoint = std::chrono::steady_clock::time_point;

  DirectAllReduce(const DirectAllReduceConfig& config,
                  std::unique_ptr<DirectLinks> links);
  // Goes on with the operation; false when `until` comes first.
  bool Advance(Operation& operation, TimePoint until);
  bool AdvanceOrFail(Operation& operation, TimePoint until);
  void BeginStep(Operation& operation);
  void CheckHeader(const Operation& operation) const;
  void EndStep(Operation& operation);
  void RunWorker();

  const DirectAllReduceConfig config_;
  const std::vector<ReduceStep> steps_;
  const std::unique_ptr<DirectLinks> links_;

  // Of the operation that is being advanced.
  std::unique_ptr<char[]> out_, in_;  // a header, then the elements
  size_t buffer_bytes_ = 0;
  uint32_t sequence_ = 0;
  std::exception_ptr broken_;  // what failed first

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<OperationPtr> pending_;  // the first is the worker's
  bool stop_ = false;
  std::thread worker_;  // from the first late peer on
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIRECT_ALL_REDUCE_H_
