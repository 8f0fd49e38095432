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

// Makes batches 0, 1, 2, ... in worker threads, at most `capacity` beyond the
// last one taken, and returns them in order. With 0 workers, Take makes the
// batch itself.
//
// Worker threads live as long as the object and run ATen operators
// single-threaded, so that they do not compete with the training threads. On
// shared cores they do not preempt the thread that wakes them inside Take, but
// wait for the scheduler.
// Start, Take and the destructor must be called by one thread; the destructor
// blocks until unfinished batches are made.
class Prefetcher {
 public:
  // Makes the batch with a number; called concurrently by any worker. An
  // exception becomes an Internal status.
  using Make = std::function<absl::StatusOr<Batch>(int64_t number)>;

  // Requires `workers` >= 0 and `capacity` > 0.
  Prefetcher(int workers, int64_t capacity);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Abandons the current job and starts making batches first .. end - 1.
  void Start(Make make, int64_t first, int64_t end);

  // Returns the next batch, or nullopt after the last; blocks until it is made.
  // An error is returned by every call until the next Start.
  absl::StatusOr<std::optional<Batch>> Take();

  // Returns whether Take would not block: it would make the batch itself, the
  // batch is ready, or none is left.
  bool Ready();

 private:
  using Slot = std::optional<absl::StatusOr<Batch>>;

  // The batches of one Start; workers share ownership while they use it.
  struct Job {
    Make make;
    int64_t end;
    int64_t next_to_make;
    int64_t next_to_take;
    std::vector<Slot> slots;  // number % capacity -> finished batch
    absl::Status error;
  };

  void Work();
  // Blocks for work; returns its job and number, or nullptr to end the thread.
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
