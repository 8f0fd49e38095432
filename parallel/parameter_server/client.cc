#include "parallel/parameter_server/client.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "parallel/clock/steady_time.h"

namespace rankwise {

ParameterClient::ParameterClient(ShardLayout layout,
                                 const std::vector<Link>& servers,
                                 std::vector<NamedTensor> buffers)
    : layout_(std::move(layout)), buffers_(std::move(buffers)) {
  for (const Link& link : servers) {
    const int number = static_cast<int>(servers_.size());
    Server& server = servers_.emplace_back(link);
    server.pushed = layout_.Allocate(number);
    server.pulled = layout_.Allocate(number);
  }
}

Reply ParameterClient::Begin() {
  for (size_t i = 0; i < servers_.size(); ++i) {
    SendRequest(static_cast<int>(i), {.kind = Request::kPull});
    StartPull(servers_[i]);
  }
  const at::Tensor buffers = Joined(buffers_);  // overwritten by Receive
  std::vector<WorkPtr> works;
  servers_[0].link.Receive(
      buffers, kFirstBucketTag + static_cast<int>(layout_.buckets()), works);
  in_place_ = 0;
  AwaitAll();
  FinishSends();
  WaitFor(works);
  Divide(buffers, buffers_);
  return servers_[0].reply;
}

void ParameterClient::SendRequest(int server, const Request& request) {
  Server& to = servers_[static_cast<size_t>(server)];
  to.request = ToHeader(request);
  to.link.Send(to.request, kHeaderTag, to.sends);
}

void ParameterClient::StartPull(Server& server) {
  server.link.Receive(server.header, kHeaderTag, server.headers);
  server.pulls.assign(server.pulled.size(), {});
  for (size_t i = 0; i < server.pulled.size(); ++i) {
    server.link.Receive(server.pulled[i], kFirstBucketTag + static_cast<int>(i),
                        server.pulls[i]);
  }
}

void ParameterClient::Timed(std::vector<WorkPtr>& works) {
  const double start = SteadySeconds();
  WaitFor(works);
  wait_seconds_ += SteadySeconds() - start;
}

bool ParameterClient::TakeReply(Server& server) {
  Timed(server.headers);
  if (ReplyFrom(server.header).waiting) {
    server.link.Receive(server.header, kHeaderTag, server.headers);
    return false;
  }
  server.reply = ReplyFrom(server.header);
  ended_ |= server.reply.ending;
  return true;
}

// While this server makes the worker wait, the worker and the other servers
// must exchange messages; otherwise a server that stopped answering would go
// unnoticed for too long.
void ParameterClient::AwaitReply(Server& server) {
  while (!TakeReply(server)) {
    for (size_t i = 0; i < servers_.size(); ++i) {
      Server& other = servers_[i];
      if (&other == &server) continue;
      if (!other.reply.ending)
        SendRequest(static_cast<int>(i), {.kind = Request::kWaiting});
      if (!other.headers.empty()) TakeReply(other);
    }
  }
}

void ParameterClient::Await(size_t bucket) {
  for (; in_place_ <= bucket; ++in_place_) {
    for (size_t i = 0; i < servers_.size(); ++i) {
      Server& server = servers_[i];
      if (!server.headers.empty()) AwaitReply(server);
      Timed(server.pulls[in_place_]);
      if (!keep_) {
        layout_.ToParameters(static_cast<int>(i), in_place_,
                             server.pulled[in_place_]);
      }
    }
  }
}

// A server that is ending the job needs no further messages.
void ParameterClient::FinishSends() {
  for (Server& server : servers_) {
    if (server.reply.ending) {
      server.sends.clear();
    } else {
      Timed(server.sends);
    }
  }
}

void ParameterClient::CountStep(const Push& step) {
  loss_sum_ += step.loss;
  ++steps_;
}

void ParameterClient::Exchange(const Push& push, const Fill& fill) {
  const at::NoGradGuard no_grad;
  AwaitAll();
  FinishSends();
  ++round_;
  CountStep(push);
  const double loss = std::exchange(loss_sum_, 0) /
                      static_cast<double>(std::exchange(steps_, 0));
  pushed_buffers_ = Joined(buffers_);
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    const int number = static_cast<int>(i);
    SendRequest(number, {.kind = Request::kPush,
                         .round = round_,
                         .read_version = server.reply.version,
                         .read_round = server.reply.round,
                         .learning_rate = push.learning_rate,
                         .loss = loss,
                         .step_loss = push.loss,
                         .examples = push.examples});
    int tag = kFirstBucketTag;
    for (size_t bucket = 0; bucket < layout_.buckets(); ++bucket) {
      fill(number, bucket);
      server.link.Send(server.pushed[bucket], tag++, server.sends);
    }
    server.link.Send(pushed_buffers_, tag, server.sends);
  }
  for (Server& server : servers_) StartPull(server);
  in_place_ = 0;
}

void ParameterClient::PushGradients(const Push& push) {
  Exchange(push, [&](int number, size_t bucket) {
    const Server& server = servers_[static_cast<size_t>(number)];
    layout_.ForEach(number, bucket, server.pushed[bucket],
                    [&](size_t i, int64_t begin, const at::Tensor& rows) {
                      const at::Tensor& gradient =
                          layout_.parameters()[i].tensor.grad();
                      if (gradient.defined()) {
                        rows.copy_(gradient.narrow(0, begin, rows.size(0)));
                      } else {
                        rows.zero_();
                      }
                    });
  });
}

void ParameterClient::PushDifference(const Push& push, double attraction) {
  keep_ = attraction > 0;
  Exchange(push, [&](int number, size_t bucket) {
    const Server& server = servers_[static_cast<size_t>(number)];
    const at::Tensor& pushed = server.pushed[bucket];
    layout_.FromParameters(number, bucket, pushed);
    pushed.neg_().add_(server.pulled[bucket]);
    if (!keep_) return;
    layout_.ForEach(number, bucket, pushed,
                    [&](size_t i, int64_t begin, const at::Tensor& rows) {
                      const at::Tensor& whole = layout_.parameters()[i].tensor;
                      whole.narrow(0, begin, rows.size(0))
                          .add_(rows.to(whole.device()), attraction);
                    });
  });
}

void ParameterClient::EndStep(const Push& step) {
  CountStep(step);
  FinishSends();
  for (size_t i = 0; i < servers_.size(); ++i) {
    SendRequest(static_cast<int>(i), {.kind = Request::kStep,
                                      .step_loss = step.loss,
                                      .examples = step.examples});
  }
}

void ParameterClient::Finish() {
  AwaitAll();
  FinishSends();
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].reply.ending)
      SendRequest(static_cast<int>(i), {.kind = Request::kDone});
  }
  FinishSends();
}

}  // namespace rankwise
