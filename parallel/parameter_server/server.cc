#include "parallel/parameter_server/server.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

ParameterServer::ParameterServer(const ParameterServerConfig& config,
                                 ShardLayout layout, int server,
                                 const std::vector<Link>& workers,
                                 std::vector<NamedTensor> buffers)
    : config_(config),
      layout_(std::move(layout)),
      server_(server),
      buffers_(std::move(buffers)),
      rows_(layout_.parameters().size()),
      gradient_(layout_.Allocate(server)),
      parameters_(layout_.Allocate(server)) {
  for (size_t bucket = 0; bucket < layout_.buckets(); ++bucket)
    layout_.FromParameters(server, bucket, parameters_[bucket]);
  layout_.ForAll(server, parameters_,
                 [&](size_t i, int64_t begin, const at::Tensor& rows) {
                   rows_[i] = {rows, begin};
                 });
  layout_.ForAll(server, gradient_,
                 [&](size_t i, int64_t, const at::Tensor& rows) {
                   rows_[i].rows.mutable_grad() = rows;
                 });
  for (const Link& link : workers) {
    peers_.push_back(std::make_unique<Peer>(link));
    peers_.back()->pushed = layout_.Allocate(server);
    peers_.back()->sent = layout_.Allocate(server);
    peers_.back()->buffers = Joined(buffers_);
  }
}

ParameterServer::~ParameterServer() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = aborting_ = true;
    changed_.notify_all();
  }
  for (const auto& peer : peers_) {
    if (peer->thread.joinable()) peer->link.Abort();
  }
  Join();
}

void ParameterServer::Finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  Join();
}

void ParameterServer::Join() {
  for (const auto& peer : peers_) {
    if (peer->thread.joinable()) peer->thread.join();
  }
}

void ParameterServer::Serve(Update update, OnLost on_lost, const Reply& start) {
  update_ = std::move(update);
  on_lost_ = std::move(on_lost);
  start_ = start;
  for (const auto& peer : peers_) peer->last_end_seconds = SteadySeconds();
  for (const auto& peer : peers_)
    peer->thread = std::thread([this, &peer = *peer] { Answer(peer); });
}

void ParameterServer::Answer(Peer& peer) {
  try {
    const at::Tensor header = EmptyHeader();
    while (true) {
      std::vector<WorkPtr> works;
      peer.link.Receive(header, kHeaderTag, works);
      WaitFor(works);
      const Request request = RequestFrom(header);
      if (request.kind == Request::kWaiting) continue;
      if (request.kind == Request::kStep) {
        const std::lock_guard lock(mutex_);
        NoteStep(peer, request);
        continue;
      }
      if (request.kind == Request::kDone) break;
      if (request.kind == Request::kPush) ReceivePush(peer);
      const Reply reply = Admit(peer, request);
      SendParameters(peer, reply);
      if (reply.ending) break;
    }
    const std::lock_guard lock(mutex_);
    peer.state = Peer::State::kDone;
    changed_.notify_all();
  } catch (const std::exception& error) {
    MarkLost(peer, PlainMessage(error));
  }
}

void ParameterServer::ReceivePush(Peer& peer) {
  std::vector<WorkPtr> works;
  int tag = kFirstBucketTag;
  for (const at::Tensor& bucket : peer.pushed)
    peer.link.Receive(bucket, tag++, works);
  peer.link.Receive(peer.buffers, tag, works);
  WaitFor(works);
}

// Blocks until the worker's push has been applied and the consistency lets the
// worker continue; sends a `waiting` reply every quarter of the collective
// timeout. Throws soon after the connection breaks, even with nothing in
// flight.
void ParameterServer::AwaitOthers(Peer& peer,
                                  std::unique_lock<std::mutex>& lock) {
  constexpr absl::Duration kLinkCheck = absl::Milliseconds(500);
  const absl::Duration interval = config_.collective_timeout / 4;
  const auto check = absl::ToChronoMilliseconds(std::min(interval, kLinkCheck));
  double reply_seconds = SteadySeconds() + absl::ToDoubleSeconds(interval);
  const auto may_continue = [&] {
    if (ending_) return true;
    if (peer.arrived) return false;
    const int64_t behind = peer.round - SlowestRound();
    return behind <= config_.consistency.bound;
  };
  while (!changed_.wait_for(lock, check, may_continue)) {
    lock.unlock();
    peer.link.ThrowIfBroken();
    if (SteadySeconds() >= reply_seconds) {
      peer.link.Send(ToHeader(Reply{.waiting = true}), kHeaderTag, peer.sends);
      reply_seconds = SteadySeconds() + absl::ToDoubleSeconds(interval);
    }
    lock.lock();
  }
}

Reply ParameterServer::Admit(Peer& peer, const Request& request) {
  std::unique_lock lock(mutex_);
  if (request.kind == Request::kPush) {
    peer.request = request;
    peer.arrived = true;
    arrivals_.push_back(&peer);
    changed_.notify_all();
    AwaitOthers(peer, lock);
  }
  for (size_t i = 0; i < parameters_.size(); ++i)
    peer.sent[i].copy_(parameters_[i]);
  peer.sent.resize(parameters_.size());
  if (request.kind == Request::kPull && server_ == 0)
    peer.sent.push_back(Joined(buffers_));
  Reply reply = start_;
  reply.ending = ending_ && !aborting_;  // without Finish the worker must fail
  reply.version = version_;
  reply.round = SlowestRound();
  return reply;
}

void ParameterServer::SendParameters(Peer& peer, const Reply& reply) {
  const at::Tensor header = ToHeader(reply);
  peer.link.Send(header, kHeaderTag, peer.sends);
  int tag = kFirstBucketTag;
  for (const at::Tensor& each : peer.sent)
    peer.link.Send(each, tag++, peer.sends);
  WaitFor(peer.sends);
}

void ParameterServer::MarkLost(Peer& peer, const std::string& why) {
  int others = 0;
  bool report = false;
  {
    const std::lock_guard lock(mutex_);
    peer.state = Peer::State::kLost;
    last_loss_ = absl::StrCat("no worker is left; the last one, rank ",
                              peer.link.peer(), ": ", why);
    others = CountIn(Peer::State::kWorking);
    report = !ending_ && (others > 0 || CountIn(Peer::State::kDone) > 0);
    changed_.notify_all();
  }
  if (report) on_lost_(peer.link.peer(), others);
}

int ParameterServer::CountIn(Peer::State state) const {
  return static_cast<int>(
      std::count_if(peers_.begin(), peers_.end(),
                    [&](const auto& peer) { return peer->state == state; }));
}

int64_t ParameterServer::SlowestRound() const {
  int64_t slowest = std::numeric_limits<int64_t>::max(), done = -1;
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kWorking)
      slowest = std::min(slowest, peer->round);
    if (peer->state == Peer::State::kDone) done = std::max(done, peer->round);
  }
  return CountIn(Peer::State::kWorking) > 0 ? slowest : done;
}

bool ParameterServer::CanApply() const {
  if (arrivals_.empty()) return false;
  return !config_.consistency.synchronous ||
         std::all_of(peers_.begin(), peers_.end(), [](const auto& peer) {
           return peer->state != Peer::State::kWorking || peer->arrived;
         });
}

// All working workers must have completed the step. If none is working, one
// that has finished suffices: the others may have had fewer steps.
bool ParameterServer::StepIsDone() const {
  const bool any_works = CountIn(Peer::State::kWorking) > 0;
  const auto has_done = [](const auto& peer) { return !peer->steps.empty(); };
  return any_works
             ? std::all_of(peers_.begin(), peers_.end(),
                           [&](const auto& peer) {
                             return peer->state != Peer::State::kWorking ||
                                    has_done(peer);
                           })
             : std::any_of(peers_.begin(), peers_.end(), [&](const auto& peer) {
                 return peer->state == Peer::State::kDone && has_done(peer);
               });
}

void ParameterServer::NoteStep(Peer& peer, const Request& request) {
  peer.steps.push_back({request.step_loss, SteadySeconds()});
  examples_ += request.examples;
  changed_.notify_all();
}

ServedStep ParameterServer::FinishStep() {
  ServedStep result;
  std::unique_lock lock(mutex_);
  const int lost = CountIn(Peer::State::kLost);
  const bool was_done = StepIsDone();
  while (!StepIsDone()) {
    const double start = SteadySeconds();
    changed_.wait(lock, [&] {
      return CanApply() || StepIsDone() || CountIn(Peer::State::kWorking) == 0;
    });
    result.wait_seconds += SteadySeconds() - start;
    if (CanApply()) {
      Apply(result);
    } else if (CountIn(Peer::State::kWorking) == 0) {
      if (CountIn(Peer::State::kDone) == 0)
        throw std::runtime_error(last_loss_);
      break;
    }
  }
  TakeStep(was_done || CountIn(Peer::State::kLost) > lost, result);
  return result;
}

void ParameterServer::TakeStep(bool is_late, ServedStep& result) {
  double sum = 0, begin_seconds = 0, end_seconds = 0;
  int workers = 0;
  for (const auto& peer : peers_) {
    if (peer->steps.empty()) continue;
    const auto [loss, peer_end_seconds] = peer->steps.front();
    if (!std::isfinite(loss) && result.non_finite_worker < 0)
      result.non_finite_worker = peer->link.peer();
    sum += loss;
    begin_seconds = std::max(begin_seconds, peer->last_end_seconds);
    end_seconds = std::max(end_seconds, peer_end_seconds);
    peer->last_end_seconds = peer_end_seconds;
    ++workers;
    peer->steps.pop_front();
  }
  result.loss = sum / workers;
  result.examples = std::exchange(examples_, 0);
  if (is_late && workers > 0) result.seconds = end_seconds - begin_seconds;
}

double ParameterServer::RateFactor(const Peer& peer) const {
  if (config_.consistency.synchronous) return 1;
  if (config_.scale_by_staleness)
    return 1 / static_cast<double>(1 + version_ - peer.request.read_version);
  // Finished workers still count, so that the learning rate does not change.
  const int workers =
      CountIn(Peer::State::kWorking) + CountIn(Peer::State::kDone);
  return 1 / static_cast<double>(std::max(workers, 1));
}

void ParameterServer::Apply(ServedStep& result) {
  const at::NoGradGuard no_grad;
  std::vector<Peer*> from = {arrivals_.front()};
  if (config_.consistency.synchronous) {
    // In worker order, not arrival order, so that runs are bitwise
    // reproducible.
    from.clear();
    for (const auto& peer : peers_) {
      if (peer->arrived) from.push_back(peer.get());
    }
  }
  for (size_t i = 0; i < gradient_.size(); ++i) {
    gradient_[i].copy_(from[0]->pushed[i]);
    for (size_t k = 1; k < from.size(); ++k)
      gradient_[i].add_(from[k]->pushed[i]);
    if (from.size() > 1) gradient_[i].div_(static_cast<double>(from.size()));
  }
  TakeBuffers(*from[0]);
  update_(from[0]->request.learning_rate * RateFactor(*from[0]));
  for (Peer* peer : from) {
    result.updates.push_back({.worker = peer->link.peer(),
                              .round = peer->request.round,
                              .read_round = peer->request.read_round,
                              .version = version_ + 1,
                              .read_version = peer->request.read_version,
                              .loss = peer->request.loss});
    peer->round = peer->request.round;
    peer->arrived = false;
    NoteStep(*peer, peer->request);
    std::erase(arrivals_, peer);
  }
  ++version_;
  changed_.notify_all();
}

void ParameterServer::TakeBuffers(const Peer& peer) {
  const auto first = std::find_if(
      peers_.begin(), peers_.end(),
      [](const auto& each) { return each->state == Peer::State::kWorking; });
  if (first != peers_.end() && first->get() != &peer) return;
  Divide(peer.buffers, buffers_);
}

void ParameterServer::GatherParameters(const Group& servers) {
  for (int server = 0; server < layout_.servers(); ++server) {
    std::vector<at::Tensor> memory =
        server == server_ ? parameters_ : layout_.Allocate(server);
    for (size_t i = 0; i < memory.size(); ++i) {
      std::vector<at::Tensor> bucket = {memory[i]};
      c10d::BroadcastOptions options;
      options.rootRank = server;
      if (layout_.servers() > 1 && memory[i].numel() > 0)
        servers.process_group()->broadcast(bucket, options)->wait();
      layout_.ToParameters(server, i, memory[i]);
    }
  }
}

}  // namespace rankwise
