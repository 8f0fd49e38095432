#ifndef RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_
#define RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "samplers/datasets/dataset.h"
#include "samplers/loader/prefetcher.h"
#include "samplers/loader/transforms.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {

struct DataLoaderConfig {
  // Examples per batch; the last one is smaller unless drop_last.
  int64_t batch_size = 64;
  bool drop_last = false;
  // Threads that make batches; 0: Next makes them itself.
  int workers = 1;
  // Batches made ahead of their use, at most; unused with 0 workers.
  int prefetch_batches = 4;
  // Where the batches go.
  c10::Device device = c10::kCPU;
  // Make batches in page-locked memory, from which they are copied to `device`
  // without blocking. Needs CUDA.
  bool pin_memory = false;
  // Applied to uint8 images [B, C, H, W]; other data passes as it is.
  TransformConfig transform = {};
};

// Copies batches to a device on a stream of its own, beside the work on earlier
// ones. The host waits for no copy of page-locked memory: the stream that uses
// a batch does, and neither the batch's memory nor the page-locked one is given
// to others before both are through with it.
class DeviceCopier {
 public:
  // `non_blocking`: the batches lie in page-locked memory; else Begin waits for
  // the copy. Not for a CPU.
  DeviceCopier(c10::Device device, bool non_blocking);

  // A batch on its way.
  class Copy {
   private:
    friend class DeviceCopier;
    Copy(Batch batch, c10::Event done)
        : batch_(std::move(batch)), done_(std::move(done)) {}
    Batch batch_;
    c10::Event done_;
  };

  // Gives the copy to the copying stream.
  Copy Begin(const Batch& batch) const;

  // The batch for the device's current stream: what that stream is given from
  // now on waits for the copy.
  Batch Use(Copy copy) const;

 private:
  at::Tensor ToDevice(const at::Tensor& tensor) const;

  const c10::Device device_;
  const bool non_blocking_;
  const c10::Stream stream_;
};

// Where an epoch stands; what a checkpoint keeps of a loader.
struct LoaderState {
  int64_t epoch = 0;
  // Batches of this epoch that were handed out.
  int64_t position = 0;
};

// Hands out a dataset batch by batch, in a sampler's order, made ahead by
// worker threads. The batches do not depend on the number of workers.
//
//   DataLoader loader(dataset.get(), sampler.get(), {.batch_size = 64});
//   loader.StartEpoch(1);
//   while (true) {
//     absl::StatusOr<std::optional<Batch>> batch = loader.Next();
//     if (!batch.ok()) return batch.status();
//     if (!batch->has_value()) break;  // the epoch is over
//     Step((*batch)->data, (*batch)->target);
//   }
//
// Not thread-safe: one thread owns a loader. The dataset and the sampler must
// outlive it, and the sampler must not be used by anyone else meanwhile.
class DataLoader {
 public:
  // InvalidArgument with the field and its value, when `config` makes no sense
  // for `dataset`.
  static absl::Status Validate(const Dataset& dataset,
                               const DataLoaderConfig& config);

  // The config must pass Validate. Starts the workers, but no epoch: Next gives
  // nothing until StartEpoch or Resume.
  DataLoader(const Dataset* dataset, Sampler* sampler, DataLoaderConfig config);

  // Begins an epoch from its first batch: tells the sampler, and starts to
  // prefetch. Batches of an unfinished epoch are abandoned.
  void StartEpoch(int64_t epoch);

  // Begins at a remembered place: Next gives batch `position` of `epoch`, and
  // then what the interrupted epoch would have given. InvalidArgument when the
  // epoch has no such position (0 .. batches_per_epoch()).
  absl::Status Resume(LoaderState state);

  // The next batch on `device`, or nothing at the end of the epoch. Blocks
  // until it is made (counted by wait_seconds). What a dataset threw comes as
  // Internal, with the batch's number, until another epoch is started.
  //
  // Not on a CPU: the batch is for the device's current stream, which waits for
  // its copy; the host waits only without pin_memory. The copy of the batch
  // after it has begun, on a stream of its own, if that batch is made already.
  absl::StatusOr<std::optional<Batch>> Next();

  // Batches that an epoch has for this rank.
  int64_t batches_per_epoch() const;
  // Examples that an epoch has for this rank, without those that drop_last
  // leaves out.
  int64_t examples_per_epoch() const;
  // Seconds that Next spent waiting for data, over all epochs.
  double wait_seconds() const { return wait_seconds_; }
  LoaderState state() const { return state_; }

 private:
  // A batch that is being copied, nothing after the last, or what went wrong.
  using Copying = absl::StatusOr<std::optional<DeviceCopier::Copy>>;

  void Start();
  absl::StatusOr<Batch> Make(absl::Span<const int64_t> indices) const;
  absl::StatusOr<std::optional<Batch>> Take();
  Copying BeginCopy();
  absl::StatusOr<std::optional<Batch>> NextOnDevice();

  const Dataset* const dataset_;
  Sampler* const sampler_;
  const DataLoaderConfig config_;
  const std::optional<BatchTransform> transform_;  // none: data passes as is
  LoaderState state_;
  double wait_seconds_ = 0;
  const std::optional<DeviceCopier> copier_;  // none on a CPU
  std::optional<Copying> ahead_;              // of batch state_.position
  Prefetcher prefetcher_;  // last: its threads end before the rest goes
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_
