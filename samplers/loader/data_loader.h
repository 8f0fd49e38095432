#ifndef RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_
#define RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "samplers/datasets/dataset.h"
#include "samplers/loader/prefetcher.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {

// torchvision's ToTensor and Normalize(0.5, 0.5), to the last bit: contiguous
// uint8 [B, C, H, W] becomes fp32 of the same shape between -1 and 1, laid out
// channels-last (NHWC strides), in pinned memory with `pin_memory`. A pixel has
// one of 256 values, so this is one table look-up per pixel, in the calling
// thread alone. Throws c10::Error for other tensors.
at::Tensor NormalizeImages(const at::Tensor& images, bool pin_memory = false);

struct DataLoaderConfig {
  int64_t batch_size =
      64;           // examples per batch; an epoch's last may be smaller
  int workers = 1;  // threads that make batches; 0: Next makes them itself
  int prefetch_batches = 4;  // made ahead at most; unused with 0 workers
  // Where the batches go; for a GPU they are made in page-locked memory.
  c10::Device device = c10::kCPU;
};

// Copies batches to a device on a stream of its own, while it works on earlier
// ones. The host waits for no copy of page-locked memory: the stream that uses
// a batch does, and neither the batch's memory nor the page-locked one is given
// to others before both are through with it.
class DeviceCopier {
 public:
  // `non_blocking`: the batches lie in page-locked memory; else Begin waits for
  // the copy. Not for a CPU.
  DeviceCopier(c10::Device device, bool non_blocking);

  // A batch that must not be used before `done`.
  struct Copy {
    Batch batch;
    c10::Event done;
  };

  // Gives the copy to the copying stream.
  Copy Begin(const Batch& batch) const;

  // The batch for the device's current stream: what that stream is given from
  // now on waits for the copy.
  Batch Use(Copy copy) const;

 private:
  const c10::Device device_;
  const bool non_blocking_;
  const c10::Stream stream_;
};

// Where an epoch stands; what a checkpoint keeps of a loader.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;  // batches of this epoch that were handed out
};

// Hands out a dataset batch by batch, in a sampler's order, made ahead by
// worker threads; uint8 images [B, C, H, W] go through NormalizeImages, other
// data passes as it is. The batches do not depend on the number of workers.
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
  // Starts the workers, but no epoch: Next gives nothing until StartEpoch or
  // Resume. Throws c10::Error for numbers below 1 (`workers`: below 0).
  DataLoader(const Dataset* dataset, DistributedSampler* sampler,
             DataLoaderConfig config);

  // Begins an epoch from its first batch: tells the sampler, and starts to
  // prefetch. Batches of an unfinished epoch are abandoned.
  void StartEpoch(int64_t epoch);

  // Begins at a remembered place: Next gives batch `position` of `epoch`, and
  // then what the interrupted epoch would have given. InvalidArgument when the
  // epoch has no such position (0 .. batches_per_epoch()).
  absl::Status Resume(LoaderState state);

  // The next batch on `device`, or nothing at the end of the epoch. Blocks
  // until it is made. What a dataset threw comes as Internal, with the batch's
  // number, until another epoch is started.
  //
  // On a GPU the batch is for the device's current stream, which waits for its
  // copy; the host does not. The copy of the batch after it has begun, on a
  // stream of its own, if that batch is made already.
  absl::StatusOr<std::optional<Batch>> Next();

  // Batches that an epoch has for this rank.
  int64_t batches_per_epoch() const;
  int64_t batch_size() const { return config_.batch_size; }
  LoaderState state() const { return state_; }

 private:
  // A batch that is being copied, nothing after the last, or what went wrong.
  using Copying = absl::StatusOr<std::optional<DeviceCopier::Copy>>;

  void Start();
  absl::StatusOr<Batch> Make(absl::Span<const int64_t> indices) const;
  Copying BeginCopy();
  absl::StatusOr<std::optional<Batch>> NextOnDevice();

  const Dataset* const dataset_;
  DistributedSampler* const sampler_;
  const DataLoaderConfig config_;
  const bool pin_memory_;
  LoaderState state_;
  const std::optional<DeviceCopier> copier_;  // none on a CPU
  std::optional<Copying> ahead_;              // of batch state_.position
  Prefetcher prefetcher_;  // last: its threads end before the rest goes
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_
