#ifndef RANKWISE_SAMPLERS_LOADER_PREFETCHER_H_
#define RANKWISE_SAMPLERS_LOADER_PREFETCHER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {

// Makes batch 0, 1, 2, ... ahead of their use in worker threads, at most
// `capacity` beyond the last one taken, and hands them out in order. With 0
// workers, Take makes the batch itself.
//
// Worker threads live as long as the object and run ATen operators
// single-threaded, so that they do not compete with the training threads. Where
// they share cores with these, they do not take one at the moment that they are
// woken, inside Take, but when the scheduler gives it to them.
// Start, Take and the destructor belong to one thread; the destructor waits for
// batches that are being made.
class Prefetcher {
 public:
  // Makes the batch with a number; called by any worker, concurrently. An
  // exception becomes an Internal status.
  using Make = std::function<absl::StatusOr<Batch>(int64_t number)>;

  // `workers` >= 0; `capacity` > 0.
  Prefetcher(int workers, int64_t capacity);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Abandons what is under way and begins to make batches first .. end - 1.
  void Start(Make make, int64_t first, int64_t end);

  // The next batch, or nothing after the last; blocks until it is made. An
  // error is given again by every call until the next Start.
  absl::StatusOr<std::optional<Batch>> Take();

  // Whether Take would not block: it would make the batch itself, or has it,
  // or has none to give.
  bool Ready();

 private:
  using Slot = std::optional<absl::StatusOr<Batch>>;

  // The batches of one Start; workers keep it alive while they use it.
  struct Job {
    Make make;
    int64_t end;
    int64_t next_to_make;
    int64_t next_to_take;
    std::vector<Slot> slots;  // number % capacity -> the batch when made
    absl::Status error;
  };

  void Work();
  // The job with a batch to make, and its number; null to end the thread.
  std::shared_ptr<Job> WaitForWork(int64_t* number);
  bool HasWork() const;

  const int64_t capacity_;
  std::mutex mutex_;
  std::condition_variable work_;  // room in the queue, a new job, or the end
  std::condition_variable made_;  // a batch was made
  std::shared_ptr<Job> job_;      // guarded by mutex_, as are its fields
  bool stopping_ = false;         // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_PREFETCHER_H_
