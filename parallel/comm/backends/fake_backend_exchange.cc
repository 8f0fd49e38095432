#include "parallel/comm/backends/fake_backend_exchange.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>

#include "ATen/core/ivalue.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "parallel/clock/steady_time.h"

namespace rankwise {
namespace {

using Clock = FakeTimeline::Clock;

Clock::duration Seconds(double seconds) {
  return std::chrono::round<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

bool InVirtualTime() { return VirtualTime::OfThisThread() != nullptr; }

// The time on the calling rank's clock.
Clock::time_point RankNow() {
  const VirtualTime* own = VirtualTime::OfThisThread();
  return own == nullptr ? Clock::now() : own->now();
}

// When the timeline announces a call that ends at `end` on its rank's clock.
Clock::time_point AnnouncedAt(Clock::time_point end) {
  return InVirtualTime() ? Clock::time_point{} : end;
}

std::exception_ptr Error(const std::string& message) {
  return std::make_exception_ptr(
      c10::Error({__func__, __FILE__, __LINE__}, message));
}

std::string Described(const FakeCall& call) {
  std::string text = call.name;
  if (call.root >= 0) absl::StrAppend(&text, " root ", call.root);
  if (!call.inputs.empty()) {
    absl::StrAppend(&text, " of ", call.inputs[0].numel(), " ",
                    c10::toString(call.inputs[0].scalar_type()));
  }
  return text;
}

bool SameCollective(const FakeCall& a, const FakeCall& b) {
  return a.name == b.name && a.root == b.root && a.op == b.op;
}

}  // namespace

void FakeSignal::Set() {
  set_ = 1;
  syscall(SYS_futex, &set_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(),
          nullptr, nullptr, 0);
}

void FakeSignal::Wait() {
  while (set_ == 0)
    syscall(SYS_futex, &set_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
}

FakeWork::FakeWork(int rank, c10d::OpType type,
                   std::vector<torch::Tensor> outputs)
    : c10d::Work(rank, type),
      virtual_time_(InVirtualTime()),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()))) {}

bool FakeWork::wait(std::chrono::milliseconds timeout) {
  if (done_ != nullptr && timeout == kNoTimeout) done_->Wait();
  const bool done = c10d::Work::wait(timeout);
  if (virtual_time_) {
    VirtualTime* const own = VirtualTime::OfThisThread();
    TORCH_CHECK(own != nullptr,
                "a call of a rank in virtual time must be waited for on the "
                "rank's own thread");
    own->RunAt(end_, [this] {
      if (!future_->completed()) future_->markCompleted(c10::IValue(outputs_));
    });
  }
  return done;
}

void FakeWork::Complete(const std::exception_ptr& error,
                        Clock::time_point end) {
  end_ = end;
  finish(error);
  if (error) {
    future_->setError(error);
  } else if (!virtual_time_) {
    future_->markCompleted(c10::IValue(outputs_));
  }
  if (error && done_ != nullptr) done_->Set();
}

FakeExchange::FakeExchange(int world_size, const FakeBackendConfig& config,
                           int alone)
    : world_size_(world_size),
      config_(config),
      alone_(alone),
      timeout_(config.timeout),
      next_sequence_(world_size, 0) {}

FakeExchange::~FakeExchange() {
  for (auto& [work, error] : TakeExpired(Clock::time_point::max())) {
    work->Complete(error);
  }
}

FakeExchange::Clock::duration FakeExchange::Lateness(int rank) const {
  return Seconds(FakeLatenessSeconds(config_, rank));
}

FakeExchange::Clock::duration FakeExchange::WorstLateness() const {
  Clock::duration worst{};
  for (int rank = 0; rank < world_size_; ++rank) {
    worst = std::max(worst, Lateness(rank));
  }
  return worst;
}

FakeExchange::Clock::duration FakeExchange::Cost(double bytes) const {
  return Seconds(FakeCostSeconds(config_, bytes));
}

void FakeExchange::set_timeout(std::chrono::milliseconds timeout) {
  std::lock_guard<std::mutex> lock(mutex_);
  timeout_ = timeout;
}

FakeExchange::WorkPtr FakeExchange::Collective(int rank, c10d::OpType type,
                                               FakeCall call, double bytes) {
  auto work = c10::make_intrusive<FakeWork>(rank, type, call.outputs);
  std::exception_ptr failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t sequence = next_sequence_[rank]++;
    std::shared_ptr<Meeting>& slot = meetings_[sequence];
    if (slot == nullptr) slot = std::make_shared<Meeting>();
    const std::shared_ptr<Meeting> meeting = slot;
    Arrive(*meeting, rank, std::move(call), work);
    const bool complete = alone_ >= 0 || meeting->arrived == world_size_;
    if (complete) meetings_.erase(sequence);
    failure = meeting->failure;
    if (!failure && complete) {
      Start(meeting,
            Cost(bytes) + Seconds(FakeTailSeconds(config_, sequence + 1)));
    } else if (!failure) {
      ArmTimeout();
    }
  }
  if (failure) work->Complete(failure);
  return work;
}

void FakeExchange::Arrive(Meeting& meeting, int rank, FakeCall call,
                          WorkPtr work) {
  const bool alone = alone_ >= 0;
  meeting.calls.resize(alone ? 1 : world_size_);
  meeting.works.resize(meeting.calls.size());
  meeting.calls[alone ? 0 : rank] = std::move(call);
  work->WakeBy(meeting.done);
  meeting.works[alone ? 0 : rank] = std::move(work);
  ++meeting.arrived;
  meeting.first_entry = std::min(meeting.first_entry, Clock::now());
  const auto entry = RankNow() + (alone ? WorstLateness() : Lateness(rank));
  meeting.last_entry = std::max(meeting.last_entry, entry);
}

std::exception_ptr FakeExchange::Mismatch(const Meeting& meeting) const {
  for (size_t rank = 1; rank < meeting.calls.size(); ++rank) {
    if (!SameCollective(meeting.calls[0], meeting.calls[rank])) {
      return Error(absl::StrCat("ranks call different collectives: rank 0 ",
                                Described(meeting.calls[0]), ", rank ", rank,
                                " ", Described(meeting.calls[rank])));
    }
  }
  return nullptr;
}

void FakeExchange::Start(std::shared_ptr<Meeting> meeting,
                         Clock::duration cost) {
  const auto end = std::max(meeting->last_entry, channel_free_) + cost;
  channel_free_ = end;
  std::vector<const FakeCall*> from;
  std::vector<int> to;
  for (int rank = 0; rank < world_size_; ++rank) {
    from.push_back(&meeting->calls[alone_ >= 0 ? 0 : rank]);
    if (alone_ < 0 || alone_ == rank) to.push_back(rank);
  }
  meeting->failure = Mismatch(*meeting);
  auto move = [meeting, from = std::move(from), to = std::move(to)] {
    if (meeting->failure) return;
    try {
      MoveFakeData(from, to);
    } catch (...) {
      meeting->failure = std::current_exception();
    }
  };
  timeline_.Schedule(std::move(move), AnnouncedAt(end), [meeting, end] {
    for (const WorkPtr& work : meeting->works) {
      work->Complete(meeting->failure, end);
    }
    meeting->done->Set();
  });
}

FakeExchange::Clock::time_point FakeExchange::SendTime(int source, int target,
                                                       double bytes) {
  Clock::time_point& free = link_free_[{source, target}];
  const auto entry = RankNow() + std::max(Lateness(source), Lateness(target));
  free = std::max(entry, free) + Cost(bytes);
  return free;
}

FakeExchange::WorkPtr FakeExchange::Send(int rank, const torch::Tensor& tensor,
                                         int target, int tag) {
  auto work = c10::make_intrusive<FakeWork>(rank, c10d::OpType::SEND,
                                            std::vector<torch::Tensor>{tensor});
  Message message{tensor.clone(), {}};
  std::lock_guard<std::mutex> lock(mutex_);
  message.arrival = SendTime(rank, target, tensor.nbytes());
  timeline_.Schedule(
      [] {}, AnnouncedAt(message.arrival),
      [work, end = message.arrival] { work->Complete(nullptr, end); });
  if (alone_ >= 0) {
    last_sent_[tag] = std::move(message.data);
    return work;
  }
  Mailbox& mailbox = mailboxes_[{rank, target, tag}];
  if (mailbox.recvs.empty()) {
    mailbox.messages.push_back(std::move(message));
  } else {
    WaitingRecv recv = std::move(mailbox.recvs.front());
    mailbox.recvs.pop_front();
    Deliver(std::move(message), std::move(recv));
  }
  return work;
}

FakeExchange::WorkPtr FakeExchange::Recv(int rank, const torch::Tensor& tensor,
                                         int source, int tag) {
  auto work = c10::make_intrusive<FakeWork>(rank, c10d::OpType::RECV,
                                            std::vector<torch::Tensor>{tensor});
  std::lock_guard<std::mutex> lock(mutex_);
  WaitingRecv recv{tensor, work, RankNow() + Lateness(rank), Clock::now()};
  if (alone_ >= 0) {
    const auto sent = last_sent_.find(tag);
    const bool fits =
        sent != last_sent_.end() && sent->second.numel() == tensor.numel();
    Deliver({fits ? sent->second : tensor.clone(),
             SendTime(source, rank, tensor.nbytes())},
            std::move(recv));
    return work;
  }
  Mailbox& mailbox = mailboxes_[{source, rank, tag}];
  if (mailbox.messages.empty()) {
    mailbox.recvs.push_back(std::move(recv));
    ArmTimeout();
  } else {
    Message message = std::move(mailbox.messages.front());
    mailbox.messages.pop_front();
    Deliver(std::move(message), std::move(recv));
  }
  return work;
}

void FakeExchange::Deliver(Message message, WaitingRecv recv) {
  auto failure = std::make_shared<std::exception_ptr>();
  auto move = [data = message.data, target = recv.target, failure] {
    const at::NoGradGuard no_grad;
    if (data.numel() == target.numel()) {
      target.copy_(data.reshape(target.sizes()));
    } else {
      *failure = Error(absl::StrCat("recv: a message of ", data.numel(),
                                    " elements does not fit into a buffer of ",
                                    target.numel()));
    }
  };
  const auto end = std::max(message.arrival, recv.entry);
  timeline_.Schedule(
      std::move(move), AnnouncedAt(end),
      [work = recv.work, failure, end] { work->Complete(*failure, end); });
}

void FakeExchange::ArmTimeout() {
  if (timeout_armed_) return;
  timeout_armed_ = true;
  timeline_.Schedule([] {}, Clock::now() + timeout_,
                     [self = weak_from_this()] {
                       if (const auto exchange = self.lock())
                         exchange->FailExpired();
                     });
}

void FakeExchange::FailExpired() {
  std::vector<std::pair<WorkPtr, std::exception_ptr>> expired;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    timeout_armed_ = false;
    expired = TakeExpired(Clock::now() - timeout_);
    if (!meetings_.empty() || !mailboxes_.empty()) ArmTimeout();
  }
  for (auto& [work, error] : expired) work->Complete(error);
}

std::vector<std::pair<FakeExchange::WorkPtr, std::exception_ptr>>
FakeExchange::TakeExpired(Clock::time_point entered_before) {
  std::vector<std::pair<WorkPtr, std::exception_ptr>> expired;
  for (auto& [sequence, meeting] : meetings_) {
    if (meeting->failure || meeting->first_entry > entered_before) continue;
    std::vector<int> missing;
    std::string name;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (meeting->works[rank] == nullptr) missing.push_back(rank);
      if (meeting->works[rank] != nullptr) {
        name = Described(meeting->calls[rank]);
      }
    }
    meeting->failure = Error(absl::StrCat(
        "fake backend: collective ", sequence, ", ", name,
        ", gave up waiting for rank ", absl::StrJoin(missing, ", ")));
    for (const WorkPtr& work : meeting->works) {
      if (work != nullptr) expired.emplace_back(work, meeting->failure);
    }
  }
  for (auto& [route, mailbox] : mailboxes_) {
    while (!mailbox.recvs.empty() &&
           mailbox.recvs.front().posted <= entered_before) {
      expired.emplace_back(
          mailbox.recvs.front().work,
          Error(absl::StrCat("fake backend: recv, tag ", std::get<2>(route),
                             ", gave up waiting for rank ",
                             std::get<0>(route))));
      mailbox.recvs.pop_front();
    }
  }
  return expired;
}

struct FakeTimeline::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::multimap<Clock::time_point, std::function<void()>> callbacks;
  bool stopping = false;

  void Add(Clock::time_point when, std::function<void()> callback) {
    std::lock_guard<std::mutex> lock(mutex);
    callbacks.emplace(when, std::move(callback));
    changed.notify_all();
  }
};

FakeTimeline::FakeTimeline()
    : state_(std::make_shared<State>()), thread_(Run, state_) {}

FakeTimeline::~FakeTimeline() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  // A callback may drop the last reference to this object's owner.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void FakeTimeline::Schedule(std::function<void()> work, Clock::time_point when,
                            std::function<void()> announce) {
  state_->Add(Clock::time_point::min(),
              [state = state_.get(), work = std::move(work), when,
               announce = std::move(announce)]() mutable {
                work();
                state->Add(when, std::move(announce));
              });
}

void FakeTimeline::Run(const std::shared_ptr<State>& state) {
  // The kernel may wake a thread up to 50 us late by default; 1 ns instead.
  prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock<std::mutex> lock(state->mutex);
  while (!state->callbacks.empty() || !state->stopping) {
    const auto first = state->callbacks.begin();
    if (first == state->callbacks.end()) {
      state->changed.wait(lock);
    } else if (const auto when = first->first;
               when > Clock::now() && !state->stopping) {
      state->changed.wait_until(lock, when);
    } else {
      std::function<void()> callback = std::move(first->second);
      state->callbacks.erase(first);
      lock.unlock();
      callback();
      callback = nullptr;  // its captures may call back into this timeline
      lock.lock();
    }
  }
}

}  // namespace rankwise
