// A parameter server: stores its rows of the parameters and answers each worker
// on a thread of its own.
#ifndef RANKWISE_PARALLEL_PARAMETER_SERVER_SERVER_H_
#define RANKWISE_PARALLEL_PARAMETER_SERVER_SERVER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/group.h"
#include "parallel/parameter_server/protocol.h"
#include "parallel/parameter_server/shards.h"
#include "records/record.h"
#include "torch/types.h"

namespace rankwise {

struct ParameterServerConfig {
  Consistency consistency;
  // For gradients that are applied one by one: divides the learning rate by 1 +
  // the number of updates since the parameters were read (Zhang et al. 2016,
  // "Staleness-aware Async-SGD", equation 6), instead of by the number of
  // workers that are not lost.
  bool scale_by_staleness = false;
  int64_t bucket_bytes = int64_t{4} << 20;
  // Maximum silence of a worker or server; the connections' timeout. A worker
  // that waits for others receives replies at shorter intervals.
  absl::Duration collective_timeout = absl::Minutes(5);
};

// A server's results for one step of the workers.
struct ServedStep {
  // Mean over the workers that completed the step; NaN if none did.
  double loss = 0;
  // Rank in the job of the first such worker with a non-finite loss, or -1.
  int non_finite_worker = -1;
  // Examples that all workers reported since the previous step.
  int64_t examples = 0;
  double wait_seconds = 0;
  // Duration of the step on the workers that completed it, from the latest end
  // of their previous steps to the latest end of this one. Set only if the
  // server noticed its end late: while the server waited for a lost worker, the
  // others may have completed this step and later ones.
  std::optional<double> seconds;
  std::vector<UpdateRecord> updates;
};

// A thread per worker receives the worker's pushes, blocks until the
// consistency allows a reply, and sends the parameters. The caller's thread
// applies the gradients, in FinishStep. A worker is lost when its connection
// breaks or it is silent for the collective timeout; the others continue.
class ParameterServer {
 public:
  // Applies the gradients of rows() (Li et al. 2014, "Scaling Distributed
  // Machine Learning with the Parameter Server", algorithm 1).
  using Update = std::function<void(double learning_rate)>;
  // Called on the worker's thread for each worker that is lost before the job
  // ends, with its rank in the job and the number of workers still training; 0
  // if all others have finished. Not called for the last worker if none has
  // finished: FinishStep throws instead.
  using OnLost = std::function<void(int rank, int others)>;

  // Initialises its rows from the parameters' current values. `workers`: the
  // links to all workers. Every update overwrites `buffers` with those of the
  // first remaining worker.
  ParameterServer(const ParameterServerConfig& config, ShardLayout layout,
                  int server, const std::vector<Link>& workers,
                  std::vector<NamedTensor> buffers);
  // Unless Finish was called, breaks the connections; the workers then fail.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // By parameter: this server's rows, which an optimizer updates, and the index
  // of the first one. The tensor is undefined if the server has none. Their
  // gradients are live.
  struct Rows {
    at::Tensor rows;
    int64_t begin = 0;
  };
  const std::vector<Rows>& rows() const { return rows_; }

  // Starts answering workers. `start`: where their training continues.
  void Serve(Update update, OnLost on_lost, const Reply& start);

  // Blocks until all remaining workers have completed one more step and the
  // pushes that ended it have been applied. Throws std::runtime_error with the
  // last worker's connection error when all workers are lost.
  ServedStep FinishStep();

  // Copies all servers' rows to the parameters. Collective over `servers`,
  // between two rounds. Throws a broadcast's exceptions.
  void GatherParameters(const Group& servers);

  // Announces the job's end to workers that still push; blocks until they
  // leave.
  void Finish();

 private:
  struct DoneStep {
    double loss = 0;
    double end_seconds = 0;  // steady clock
  };
  struct Peer {
    explicit Peer(const Link& link) : link(link) {}
    enum class State { kWorking, kDone, kLost };
    Link link;
    State state = State::kWorking;
    Request request;                       // accompanies `pushed`
    bool arrived = false;                  // whether it waits to be applied
    int64_t round = 0;                     // last applied round
    std::deque<DoneStep> steps;            // not yet returned by FinishStep
    double last_end_seconds = 0;           // end of the step before these
    std::vector<at::Tensor> pushed, sent;  // buckets; the buffers may follow
    at::Tensor buffers;                    // pushed
    std::vector<WorkPtr> sends;            // in flight
    std::thread thread;
  };

  void Answer(Peer& peer);
  void ReceivePush(Peer& peer);
  Reply Admit(Peer& peer, const Request& request);
  void AwaitOthers(Peer& peer, std::unique_lock<std::mutex>& lock);
  void SendParameters(Peer& peer, const Reply& reply);
  void MarkLost(Peer& peer, const std::string& why);
  void Join();
  // These require `mutex_`.
  int CountIn(Peer::State state) const;
  // Returns the rounds applied for all remaining workers; -1 if all are lost.
  int64_t SlowestRound() const;
  bool CanApply() const;
  void Apply(ServedStep& result);
  bool StepIsDone() const;
  void NoteStep(Peer& peer, const Request& request);
  void TakeStep(bool is_late, ServedStep& result);
  double RateFactor(const Peer& peer) const;
  void TakeBuffers(const Peer& peer);

  const ParameterServerConfig config_;
  const ShardLayout layout_;
  const int server_;
  const std::vector<NamedTensor> buffers_;
  Update update_;
  OnLost on_lost_;
  std::vector<Rows> rows_;
  // Buckets, of which the rows' gradients are views.
  std::vector<at::Tensor> gradient_;

  // Guards the members below; of a peer, all but its thread's messages.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> parameters_;  // buckets, of which the rows are views
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> arrivals_;  // in order of arrival
  int64_t version_ = 0;
  int64_t examples_ = 0;  // reported since the last step
  Reply start_;
  bool ending_ = false, aborting_ = false;
  std::string last_loss_;  // error of the last lost worker
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PARAMETER_SERVER_SERVER_H_
