#include "parallel/comm/monitored_message.h"

#include <utility>
#include <vector>

#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

// Forwards every virtual function of c10d::Work.
class MonitoredMessage : public c10d::Work {
 public:
  MonitoredMessage(c10::intrusive_ptr<c10d::Work> inner, MessageEntry entry)
      : Work(/*rank=*/-1, inner->retrieveOpType()),
        inner_(std::move(inner)),
        entry_(std::move(entry)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      entry_.Waiting();
      const bool completed = inner_->wait(timeout);
      entry_.Done();
      return completed;
    } catch (...) {
      entry_.Failed();
      throw;
    }
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
  const MessageEntry entry_;
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

void MessageEntry::Failed() const {
  if (log_->EndPointToPoint(ticket_, false)) return;
  log_->EndPointToPoint(log_->BeginPointToPoint(name_, {}, peer_, group_),
                        false);
}

c10::intrusive_ptr<c10d::Work> MakeMonitoredMessage(
    c10::intrusive_ptr<c10d::Work> inner, const MessageEntry& entry) {
  return c10::make_intrusive<MonitoredMessage>(std::move(inner), entry);
}

}  // namespace rankwise
