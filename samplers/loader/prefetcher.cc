#include "samplers/loader/prefetcher.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

absl::StatusOr<Batch> MakeOrExplain(const Prefetcher::Make& make,
                                    int64_t number) {
  const auto explain = [number](const char* what) {
    return absl::InternalError(
        absl::StrCat("making batch ", number, " failed: ", what));
  };
  try {
    return make(number);
  } catch (const c10::Error& error) {
    return explain(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return explain(error.what());
  }
}

// Makes ATen operators on the calling thread single-threaded; other threads are
// unaffected. (at::set_num_threads would also change threads started later.)
void RunOperatorsSingleThreaded() {
  // ATen sets the calling thread's number once, on first use; force that now.
  (void)at::get_num_threads();
  // OpenMP's setting is per thread. LibTorch bundles OpenMP under its own
  // library name, so the function is looked up rather than linked.
  using SetNumThreads = void (*)(int);
  auto set = reinterpret_cast<SetNumThreads>(
      dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(1);
}

// Prevents the calling thread from preempting the thread that wakes it, which
// has taken a batch and begins a step.
void UseBatchScheduling() {
  const sched_param none{};
  (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

}  // namespace

Prefetcher::Prefetcher(int workers, int64_t capacity) : capacity_(capacity) {
  threads_.reserve(workers);
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { Work(); });
}

Prefetcher::~Prefetcher() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::Start(Make make, int64_t first, int64_t end) {
  auto job = std::make_shared<Job>();
  job->make = std::move(make);
  job->end = end;
  job->next_to_make = job->next_to_take = first;
  job->slots.resize(capacity_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    job_.swap(job);
  }
  work_.notify_all();
}  // the previous job is freed here or by the last worker that uses it

absl::StatusOr<std::optional<Batch>> Prefetcher::Take() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (job_ == nullptr) return std::nullopt;
  Job& job = *job_;
  if (!job.error.ok()) return job.error;
  if (job.next_to_take >= job.end) return std::nullopt;
  const int64_t number = job.next_to_take;
  Slot taken;
  if (threads_.empty()) {
    taken = MakeOrExplain(job.make, number);
  } else {
    Slot& slot = job.slots[number % capacity_];
    made_.wait(lock, [&slot] { return slot.has_value(); });
    taken = std::exchange(slot, std::nullopt);
  }
  if (taken->ok()) {
    ++job.next_to_take;
  } else {
    job.error = taken->status();
    job.end = number;  // stop making batches
  }
  lock.unlock();
  work_.notify_one();
  if (!taken->ok()) return taken->status();
  return std::optional<Batch>(**std::move(taken));
}

bool Prefetcher::Ready() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (threads_.empty() || job_ == nullptr || !job_->error.ok()) return true;
  return job_->next_to_take >= job_->end ||
         job_->slots[job_->next_to_take % capacity_].has_value();
}

bool Prefetcher::HasWork() const {
  return job_ != nullptr && job_->next_to_make < job_->end &&
         job_->next_to_make < job_->next_to_take + capacity_;
}

std::shared_ptr<Prefetcher::Job> Prefetcher::WaitForWork(int64_t* number) {
  std::unique_lock<std::mutex> lock(mutex_);
  work_.wait(lock, [this] { return stopping_ || HasWork(); });
  if (stopping_) return nullptr;
  *number = job_->next_to_make++;
  return job_;
}

void Prefetcher::Work() {
  RunOperatorsSingleThreaded();
  UseBatchScheduling();
  int64_t number;
  while (std::shared_ptr<Job> job = WaitForWork(&number)) {
    absl::StatusOr<Batch> batch = MakeOrExplain(job->make, number);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job->slots[number % capacity_] = std::move(batch);
    }
    made_.notify_one();
  }
}

}  // namespace rankwise
