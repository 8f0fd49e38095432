// The memory of a training process: how the allocator treats what steps free,
// the most that was held, and what a stretch of the program allocates.
#ifndef RANKWISE_TRAINERS_MEMORY_MEASURED_MEMORY_H_
#define RANKWISE_TRAINERS_MEMORY_MEASURED_MEMORY_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <vector>

#include "parallel/sharded/order/unit_bytes.h"
#include "records/record.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/observe/step_log.h"

namespace rankwise {

// Keeps freed memory for the next step instead of giving it back to the kernel:
// by default glibc unmaps activations and gradients of megabytes each, and
// every step pays page faults for all of them (figures: docs/performance.md).
// The host's tensors come from CachingAllocator from now on, all else from
// glibc, told to keep what is freed. Call it before the first tensor.
void KeepFreedMemory();

// The peak resident set in bytes, from /proc/self/status (VmHWM, unlike
// getrusage's figure, is of this program and not of what was before exec). 0
// where the line is missing.
int64_t PeakResidentBytes(std::istream& proc_status);

// Of this rank: resident on the host, and allocated on its accelerators, each
// one's own peak added up; 0 of those that it never used. Without what the
// driver, NCCL and CUDA's libraries take for themselves.
MemoryRecord MeasurePeakMemory(const Worker& worker);

// What is allocated and not freed again while it is open: on the worker's
// accelerators, by the whole process, as their allocators count it; without
// any, on the host by the thread that opens it, whichever thread frees it. One
// at a time in a process. The host's later tensors come from an allocator that
// can count, and stays.
class AllocationMeter {
 public:
  explicit AllocationMeter(const Worker& worker);
  ~AllocationMeter() { Close(); }
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  // From zero, open or not. All calls on one thread.
  void Open();
  void Close();
  bool is_open() const { return is_open_; }
  int64_t bytes() const { return LiveBytes() - start_bytes_; }  // since Open

 private:
  int64_t LiveBytes() const;

  const std::vector<c10::Device> accelerators_;
  bool is_open_ = false;
  int64_t start_bytes_ = 0;
};

// What a rank's training holds of its memory, by kind, measured as it trains.
// Activations are what forward has allocated and not freed as backward begins;
// in a pipeline, as a stage's forward ends, without gradients. Forwards of the
// first two steps count only where there are no more. Not thread-safe; all
// calls on one thread.
class MemoryMeter {
 public:
  // All arguments outlive it. `unsharded` may be null: there is none.
  MemoryMeter(const Worker& worker, const Model& model,
              const Optimizer& optimizer,
              std::function<UnshardedBytes()> unsharded);

  // For a step's clock.
  void Enter(Phase phase);
  // Within Phase::kSchedule, after a stage's forward. Elsewhere does nothing.
  void AfterStageForward();
  void AfterStep();

  // The most of each so far.
  const MemoryParts& parts() const { return parts_; }

 private:
  // Of the optimizer's parameters; `whole`: of the model's, too.
  int64_t GradientBytes(bool whole) const;
  int64_t UnshardedNow() const;
  void TakeActivations(int64_t of_others);

  const Model& model_;
  const Optimizer& optimizer_;
  const std::function<UnshardedBytes()> unsharded_;
  AllocationMeter allocated_;
  int64_t unsharded_before_ = 0;
  int64_t steps_ = 0;
  bool warm_ = false;
  MemoryParts parts_;
};

// "memory of rank 0 in MB, computed in brackets: parameters 3.3 (3.3), ...".
std::string DescribeMemory(const MemoryRecord& record);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MEMORY_MEASURED_MEMORY_H_
