// Measures the memory of a training process: its peak, the allocations of a
// section of the program, and a rank's memory by kind; configures the allocator
// for training steps.
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

// Keeps freed memory for the next step instead of returning it to the kernel:
// by default glibc unmaps activations and gradients of megabytes each, and
// every step has page faults for all of them (figures: docs/performance.md).
// From now on the host's tensors come from CachingAllocator and everything else
// from glibc, which then keeps freed memory. Call before the first tensor.
void KeepFreedMemory();

// Returns the peak resident bytes, from /proc/self/status (VmHWM, which unlike
// getrusage excludes the time before exec), or 0 if the line is missing.
int64_t PeakResidentBytes(std::istream& proc_status);

// Returns this rank's peaks: resident bytes on the host, and allocated bytes
// summed over its accelerators' own peaks; 0 for accelerators never used.
// Excludes memory of the driver, NCCL and CUDA's libraries.
MemoryRecord MeasurePeakMemory(const Worker& worker);

// Measures the memory allocated and not yet freed while it is open: on the
// worker's accelerators, by the whole process, as counted by their allocators;
// without accelerators, on the host by the opening thread, whichever thread
// frees it: for this it replaces the host's allocator by a counting one, for
// good. One at a time per process.
class AllocationMeter {
 public:
  explicit AllocationMeter(const Worker& worker);
  ~AllocationMeter() { Close(); }
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  // Open resets the count to zero, open or not. Call on one thread only.
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

// Measures a rank's training memory by kind. Activations are the bytes that
// forward has allocated and not freed when backward begins; in a pipeline, when
// a stage's forward ends, without gradients. Forwards of the first two steps
// count only if there are no others. Not thread-safe; all calls on one thread.
class MemoryMeter {
 public:
  // All arguments must outlive it. `unsharded` is nullptr without sharding.
  MemoryMeter(const Worker& worker, const Model& model,
              const Optimizer& optimizer,
              std::function<UnshardedBytes()> unsharded);

  // The observer of a step's clock (StepClock::set_observer).
  void Enter(Phase phase);
  // Call after a stage's forward within Phase::kSchedule; no effect elsewhere.
  void AfterStageForward();
  void AfterStep();

  // Returns the peak of each kind so far.
  const MemoryParts& parts() const { return parts_; }

 private:
  // Bytes for the optimizer's parameters; with `whole`, the model's too.
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
