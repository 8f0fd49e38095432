// A worker's side: pushes to all servers and pulls the parameters bucket by
// bucket, so that first layers compute while later parameters are in transit.
#ifndef RANKWISE_PARALLEL_PARAMETER_SERVER_CLIENT_H_
#define RANKWISE_PARALLEL_PARAMETER_SERVER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "parallel/parameter_server/protocol.h"
#include "parallel/parameter_server/shards.h"
#include "torch/types.h"

namespace rankwise {

// Not thread-safe. Throws the exceptions of sending and receiving: a worker
// cannot continue without all of its servers.
//
//   ParameterClient client(layout, links, ModelBuffers(model));
//   client.Begin();
//   for (...) {
//     // forward of a layer after Await(its bucket), backward
//     client.PushGradients({.learning_rate = 0.1, .loss = loss});
//     // or, in a step without a push: client.EndStep({.loss = loss});
//   }
//   client.Finish();
class ParameterClient {
 public:
  // `servers`: links to all servers, in order.
  ParameterClient(ShardLayout layout, const std::vector<Link>& servers,
                  std::vector<NamedTensor> buffers);
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  // Pulls the parameters and buffers. Returns where to continue.
  Reply Begin();

  // Every step ends with PushGradients, PushDifference or EndStep.
  struct Push {
    double learning_rate = 0;
    double loss = 0;       // of the step
    int64_t examples = 0;  // of this worker in the step
  };
  // Pushes the parameters' gradients, zeros for undefined ones, and starts to
  // pull the resulting parameters. Blocks only for the previous push and pull.
  void PushGradients(const Push& push);
  // As PushGradients, but pushes the change of the parameters since the last
  // pull as the gradient: the pulled minus the current values (Douillard et al.
  // 2023, "DiLoCo", algorithm 1). If `attraction` > 0, later pulls do not
  // overwrite the parameters; instead the parameters move by this share of the
  // distance towards the last pulled values (Zhang et al. 2015, "Deep Learning
  // with Elastic Averaging SGD", equation 3).
  void PushDifference(const Push& push, double attraction = 0);

  // Blocks until the parameters of all buckets up to this one are in place.
  void Await(size_t bucket);
  void AwaitAll() { Await(layout_.buckets() - 1); }
  // Reports a step without a push to the servers. Ignores the learning rate.
  void EndStep(const Push& step);
  // Returns whether the servers are ending the job; then do not push again.
  bool ended() const { return ended_; }
  // Pulls the final parameters and leaves the job.
  void Finish();

  // Returns the seconds spent waiting for messages since the last call.
  double TakeWaitSeconds() { return std::exchange(wait_seconds_, 0); }

 private:
  struct Server {
    explicit Server(const Link& link) : link(link) {}
    Link link;
    Reply reply;
    at::Tensor request, header = EmptyHeader();
    std::vector<at::Tensor> pushed, pulled;  // buckets
    std::vector<WorkPtr> sends, headers;
    std::vector<std::vector<WorkPtr>> pulls;  // by bucket
  };
  using Fill = std::function<void(int server, size_t bucket)>;

  void Exchange(const Push& push, const Fill& fill);
  void FinishSends();
  void CountStep(const Push& step);
  void SendRequest(int server, const Request& request);
  void StartPull(Server& server);
  // Returns whether the reply is final, as opposed to a `waiting` reply.
  bool TakeReply(Server& server);
  void AwaitReply(Server& server);
  void Timed(std::vector<WorkPtr>& works);

  const ShardLayout layout_;
  const std::vector<NamedTensor> buffers_;
  std::vector<Server> servers_;
  at::Tensor pushed_buffers_;
  size_t in_place_ = 0;  // number of complete buckets of the current pull
  int64_t round_ = 0;
  double loss_sum_ = 0;  // of the steps since the last push
  int64_t steps_ = 0;
  bool keep_ = false;  // pulls do not overwrite the parameters
  bool ended_ = false;
  double wait_seconds_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PARAMETER_SERVER_CLIENT_H_
