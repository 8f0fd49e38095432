#include "parallel/comm/direct_all_reduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"
#include "ATen/ops/add.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/maximum.h"
#include "ATen/ops/minimum.h"
#include "ATen/ops/mul.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "c10/util/Exception.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

using Clock = std::chrono::steady_clock;
using Op = c10d::ReduceOp::RedOpType;

// How long the caller itself waits for a peer: of the order of what handing
// over to another thread and back costs.
constexpr std::chrono::microseconds kPatience{200};

// What no deadline exceeds, so that infinite timeouts do not overflow.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

// Opens every message: what both sides must agree on.
struct Header {
  uint32_t sequence = 0;
  uint16_t dtype = 0;
  uint16_t op = 0;
  uint64_t bytes = 0;
};

class DirectWork : public c10d::Work {
 public:
  DirectWork(int rank, const std::vector<at::Tensor>& tensors)
      : Work(rank, c10d::OpType::ALLREDUCE, "gloo:direct_all_reduce", tensors),
        tensors_(tensors),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }
  // Null: it has succeeded.
  void End(const std::exception_ptr& error) {
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(tensors_));
    }
    finish(error);
  }

 private:
  const std::vector<at::Tensor> tensors_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// The lower rank's value comes first on both sides: of two different NaNs, the
// same survives.
void Combine(Op op, at::Tensor& mine, const at::Tensor& theirs, bool lower) {
  const at::Tensor& first = lower ? mine : theirs;
  const at::Tensor& second = lower ? theirs : mine;
  switch (op) {
    case Op::PRODUCT:
      at::mul_out(mine, first, second);
      return;
    case Op::MIN:
      at::minimum_out(mine, first, second);
      return;
    case Op::MAX:
      at::maximum_out(mine, first, second);
      return;
    default:  // an average is a sum until the end
      at::add_out(mine, first, second);
  }
}

std::string Describe(const Header& header) {
  return c10::str(header.bytes, " bytes of ",
                  static_cast<c10::ScalarType>(header.dtype), " (all_reduce ",
                  header.sequence, ", op ", header.op, ")");
}

}  // namespace

std::vector<ReduceStep> ReduceSteps(int rank, int size) {
  using Receive = ReduceStep::Receive;
  int power = 1;
  while (power * 2 <= size) power *= 2;
  const int folded = size - power;  // pairs (0, 1), (2, 3), ...
  const bool in_pair = rank < 2 * folded;
  if (in_pair && rank % 2 == 0) {
    return {{rank + 1, true, Receive::kNothing},
            {rank + 1, false, Receive::kCopy}};
  }
  std::vector<ReduceStep> steps;
  if (in_pair) steps.push_back({rank - 1, false, Receive::kReduce});
  const int place = in_pair ? rank / 2 : rank - folded;
  for (int distance = 1; distance < power; distance *= 2) {
    const int other = place ^ distance;
    const int peer = other < folded ? 2 * other + 1 : other + folded;
    steps.push_back({peer, true, Receive::kReduce});
  }
  if (in_pair) steps.push_back({rank - 1, true, Receive::kNothing});
  return steps;
}

struct DirectAllReduce::Operation {
  std::vector<at::Tensor> tensors;  // one
  at::Tensor elements;              // its memory, out of autograd's sight
  Op op = Op::SUM;
  Header header;
  TimePoint started, deadline;
  c10::intrusive_ptr<DirectWork> work;
  std::exception_ptr error;

  size_t step = 0;
  bool step_begun = false;
  bool header_checked = false;
  Transfer transfer;
};

absl::StatusOr<std::unique_ptr<DirectAllReduce>> DirectAllReduce::Create(
    const DirectAllReduceConfig& config, c10d::Store& store) {
  std::vector<int> peers;
  for (const ReduceStep& step : ReduceSteps(config.rank, config.size)) {
    if (peers.empty() || peers.front() != step.peer) peers.push_back(step.peer);
  }
  absl::StatusOr<std::unique_ptr<DirectLinks>> links =
      DirectLinks::Connect(config.rank, peers, config.address, store,
                           absl::FromChrono(config.timeout));
  if (!links.ok()) return links.status();
  return std::unique_ptr<DirectAllReduce>(
      new DirectAllReduce(config, *std::move(links)));
}

DirectAllReduce::DirectAllReduce(const DirectAllReduceConfig& config,
                                 std::unique_ptr<DirectLinks> links)
    : config_(config),
      steps_(ReduceSteps(config.rank, config.size)),
      links_(std::move(links)) {}

DirectAllReduce::~DirectAllReduce() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    if (!pending_.empty()) links_->Shutdown();
  }
  wake_.notify_one();
  if (worker_.joinable()) worker_.join();
}

bool DirectAllReduce::Takes(const std::vector<at::Tensor>& tensors,
                            const c10d::AllreduceOptions& options) const {
  if (tensors.size() != 1) return false;
  const at::Tensor& tensor = tensors[0];
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided ||
      !tensor.is_contiguous() || tensor.numel() == 0 ||
      tensor.nbytes() > static_cast<size_t>(config_.max_bytes)) {
    return false;
  }
  const bool is_float = tensor.is_floating_point();
  if (!is_float && !c10::isIntegralType(tensor.scalar_type(), false)) {
    return false;
  }
  switch (options.reduceOp.op_) {
    case Op::SUM:
    case Op::PRODUCT:
    case Op::MIN:
    case Op::MAX:
      return true;
    case Op::AVG:
      return is_float;
    default:
      return false;
  }
}

DirectAllReduce::WorkPtr DirectAllReduce::Start(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  auto operation = std::make_shared<Operation>();
  operation->tensors = tensors;
  operation->elements =
      at::from_blob(tensors[0].data_ptr(), {tensors[0].numel()},
                    at::TensorOptions().dtype(tensors[0].scalar_type()));
  operation->op = options.reduceOp.op_;
  operation->started = Clock::now();
  operation->deadline =
      operation->started +
      std::min(options.timeout.count() > 0 ? options.timeout : config_.timeout,
               kLongest);
  operation->work =
      c10::make_intrusive<DirectWork>(config_.rank, operation->tensors);
  std::unique_lock<std::mutex> lock(mutex_);
  operation->header = {sequence_++,
                       static_cast<uint16_t>(tensors[0].scalar_type()),
                       static_cast<uint16_t>(operation->op),
                       static_cast<uint64_t>(tensors[0].nbytes())};
  if (pending_.empty() &&
      AdvanceOrFail(*operation, operation->started + kPatience)) {
    lock.unlock();
    operation->work->End(operation->error);
    return operation->work;
  }
  pending_.push_back(operation);
  if (!worker_.joinable()) {
    worker_ = std::thread(&DirectAllReduce::RunWorker, this);
  }
  lock.unlock();
  wake_.notify_one();
  return operation->work;
}

void DirectAllReduce::RunWorker() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !pending_.empty(); });
    if (pending_.empty()) return;
    const OperationPtr operation = pending_.front();
    lock.unlock();
    AdvanceOrFail(*operation, operation->deadline);
    lock.lock();
    pending_.pop_front();
    lock.unlock();
    operation->work->End(operation->error);
    lock.lock();
  }
}

// True when the operation has ended, one way or the other.
bool DirectAllReduce::AdvanceOrFail(Operation& operation, TimePoint until) {
  try {
    if (broken_) std::rethrow_exception(broken_);
    if (Advance(operation, until)) return true;
    if (until < operation.deadline) return false;
    TORCH_CHECK(false, "Timed out after ",
                std::chrono::duration_cast<std::chrono::milliseconds>(
                    operation.deadline - operation.started)
                    .count(),
                " ms of waiting for rank ", steps_[operation.step].peer,
                " of the group in a direct all_reduce");
  } catch (...) {
    // Half a message may be under way: nothing can follow it.
    operation.error = broken_ = std::current_exception();
    links_->Shutdown();
  }
  return true;
}

bool DirectAllReduce::Advance(Operation& operation, TimePoint until) {
  while (operation.step < steps_.size()) {
    if (!operation.step_begun) BeginStep(operation);
    while (!operation.transfer.done()) {
      if (!links_->Step(steps_[operation.step].peer, operation.transfer,
                        until)) {
        return false;
      }
      if (!operation.header_checked &&
          operation.transfer.in.size() <= operation.header.bytes) {
        CheckHeader(operation);
        operation.header_checked = true;
      }
    }
    EndStep(operation);
  }
  if (operation.op == Op::AVG) operation.elements.div_(config_.size);
  return true;
}

void DirectAllReduce::BeginStep(Operation& operation) {
  const size_t bytes = sizeof(Header) + operation.header.bytes;
  if (bytes > buffer_bytes_) {
    out_ = std::unique_ptr<char[]>(new char[bytes]);
    in_ = std::unique_ptr<char[]>(new char[bytes]);
    buffer_bytes_ = bytes;
  }
  const ReduceStep& step = steps_[operation.step];
  operation.transfer = Transfer{};
  if (step.send) {
    std::memcpy(out_.get(), &operation.header, sizeof(Header));
    std::memcpy(out_.get() + sizeof(Header), operation.elements.data_ptr(),
                operation.header.bytes);
    operation.transfer.out = {out_.get(), bytes};
  }
  if (step.receive != ReduceStep::Receive::kNothing) {
    operation.transfer.in = {in_.get(), bytes};
  }
  operation.step_begun = true;
  operation.header_checked = step.receive == ReduceStep::Receive::kNothing;
}

void DirectAllReduce::CheckHeader(const Operation& operation) const {
  Header theirs;
  std::memcpy(&theirs, in_.get(), sizeof(Header));
  const Header& mine = operation.header;
  TORCH_CHECK(theirs.sequence == mine.sequence && theirs.dtype == mine.dtype &&
                  theirs.op == mine.op && theirs.bytes == mine.bytes,
              "Detected mismatch between collectives on ranks: rank ",
              config_.rank, " of the group reduces ", Describe(mine), ", rank ",
              steps_[operation.step].peer, " ", Describe(theirs));
}

void DirectAllReduce::EndStep(Operation& operation) {
  const ReduceStep& step = steps_[operation.step];
  char* received = in_.get() + sizeof(Header);
  if (step.receive == ReduceStep::Receive::kReduce) {
    const at::Tensor theirs = at::from_blob(
        received, operation.elements.sizes(), operation.elements.options());
    Combine(operation.op, operation.elements, theirs, config_.rank < step.peer);
  } else if (step.receive == ReduceStep::Receive::kCopy) {
    std::memcpy(operation.elements.data_ptr(), received,
                operation.header.bytes);
  }
  ++operation.step;
  operation.step_begun = false;
}

}  // namespace rankwise
