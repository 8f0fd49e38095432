#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/core/ivalue.h"
#include "ATen/record_function.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "parallel/comm/backends/mpi/engine.h"

namespace rankwise {
namespace {

using std::chrono::nanoseconds;

int64_t NsAfterNow(std::chrono::milliseconds timeout) {
  return SteadyNowNs() + nanoseconds(timeout).count();
}

}  // namespace

MpiWork::MpiWork(MpiEngine& engine, std::shared_ptr<MpiGroup> group, Call call)
    : Work(/*rank=*/-1, call.type, call.title, call.inputs),
      engine_(engine),
      group_(std::move(group)),
      call_(std::move(call)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()))),
      deadline_ns_(call_.timeout.count() > 0 ? NsAfterNow(call_.timeout)
                                             : INT64_MAX) {}

bool MpiWork::wait(Milliseconds timeout) {
  const bool has_own = timeout > Milliseconds::zero();
  if (!ended_ && (has_own || deadline_ns_ == INT64_MAX)) {
    deadline_ns_ = NsAfterNow(has_own ? timeout : group_->timeout);
  }
  engine_.Await(*this);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return true;
}

void MpiWork::Start(const MpiApi& mpi) {
  try {
    mpi.Check(call_.start(&request_), call_.title);
  } catch (const std::exception&) {
    error_ = std::current_exception();
  }
}

bool MpiWork::HasEnded(const MpiApi& mpi) {
  if (error_ != nullptr) return true;
  int ended = 0;
  MPI_Status status;
  try {
    mpi.Check(mpi.Test(&request_, &ended, &status), call_.title);
  } catch (const std::exception&) {
    error_ = std::current_exception();
    return true;
  }
  if (ended) source_ = status.MPI_SOURCE;
  return ended != 0;
}

void MpiWork::End(std::exception_ptr error) {
  // Operators of this thread are not the model's.
  const at::DisableRecordFunctionGuard unrecorded;
  const at::NoGradGuard no_gradients;
  if (error == nullptr) error = error_;
  try {
    if (error == nullptr && call_.finish) call_.finish();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  error_ = error;
  Work::finish(error);
  ended_ = true;
  if (error != nullptr) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(call_.outputs));
  }
}

}  // namespace rankwise
