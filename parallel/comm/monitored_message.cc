#include "parallel/comm/monitored_message.h"

#include <atomic>
#include <utility>
#include <vector>

#include "parallel/comm/steady_time.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

// Forwards every virtual function of c10d::Work.
class ForwardedWork : public c10d::Work {
 public:
  explicit ForwardedWork(c10::intrusive_ptr<c10d::Work> inner)
      : Work(/*rank=*/-1, inner->retrieveOpType()), inner_(std::move(inner)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    return inner_->wait(timeout);
  }
  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  void blockCurrentStream() override { inner_->blockCurrentStream(); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return inner_->getFuture();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return inner_->getFutureResult();
  }
  float getDuration() const override { return inner_->getDuration(); }
  uint64_t getSequencenumber() const override {
    return inner_->getSequencenumber();
  }

 private:
  const c10::intrusive_ptr<c10d::Work> inner_;
};

class MonitoredMessage : public ForwardedWork {
 public:
  MonitoredMessage(c10::intrusive_ptr<c10d::Work> inner, MessageEntry entry)
      : ForwardedWork(std::move(inner)), entry_(std::move(entry)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const SteadyTime start = SteadyNow();
    try {
      entry_.Waiting();
      const bool completed = ForwardedWork::wait(timeout);
      entry_.Done();
      return completed;
    } catch (...) {
      entry_.Failed(ElapsedSince(start));
      throw;
    }
  }

 private:
  const MessageEntry entry_;
};

class MonitoredWait : public ForwardedWork {
 public:
  MonitoredWait(c10::intrusive_ptr<c10d::Work> inner,
                std::shared_ptr<CollectiveLog> log,
                CollectiveLog::Ticket ticket)
      : ForwardedWork(std::move(inner)),
        log_(std::move(log)),
        ticket_(ticket) {}
  ~MonitoredWait() override { End(/*ok=*/true); }

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      const bool completed = ForwardedWork::wait(timeout);
      End(/*ok=*/true);
      return completed;
    } catch (...) {
      End(/*ok=*/false);
      throw;
    }
  }

 private:
  void End(bool ok) {
    if (!ended_.exchange(true)) log_->End(ticket_, ok);
  }

  const std::shared_ptr<CollectiveLog> log_;
  const CollectiveLog::Ticket ticket_;
  std::atomic<bool> ended_{false};
};

}  // namespace

MessageEntry::MessageEntry(std::shared_ptr<CollectiveLog> log, const char* name,
                           at::ArrayRef<at::Tensor> tensors, int peer,
                           int group)
    : log_(std::move(log)),
      name_(name),
      peer_(peer),
      group_(group),
      ticket_(log_->BeginPointToPoint(name, tensors, peer, group)) {}

void MessageEntry::Waiting() const { log_->WaitPointToPoint(ticket_); }

void MessageEntry::Done() const { log_->EndPointToPoint(ticket_, true); }

void MessageEntry::Failed(absl::Duration waited) const {
  if (log_->EndPointToPoint(ticket_, false, waited)) return;
  log_->EndPointToPoint(log_->BeginPointToPoint(name_, {}, peer_, group_),
                        false, waited);
}

c10::intrusive_ptr<c10d::Work> MakeMonitoredMessage(
    c10::intrusive_ptr<c10d::Work> inner, const MessageEntry& entry) {
  return c10::make_intrusive<MonitoredMessage>(std::move(inner), entry);
}

c10::intrusive_ptr<c10d::Work> MakeMonitoredWait(
    c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<CollectiveLog> log,
    CollectiveLog::Ticket ticket) {
  return c10::make_intrusive<MonitoredWait>(std::move(inner), std::move(log),
                                            ticket);
}

}  // namespace rankwise
