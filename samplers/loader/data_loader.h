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

// Applies torchvision's ToTensor and Normalize(0.5, 0.5), bit for bit:
// contiguous uint8 [B, C, H, W] becomes fp32 of the same shape between -1 and 1
// in channels-last layout (NHWC strides), in pinned memory with `pin_memory`.
// Does one table look-up per pixel, in the calling thread. Throws c10::Error
// for other tensors.
at::Tensor NormalizeImages(const at::Tensor& images, bool pin_memory = false);

struct DataLoaderConfig {
  int64_t batch_size = 64;  // examples; fewer in an epoch's last batch
  int workers = 1;  // threads that make batches; 0: Next makes them itself
  int prefetch_batches = 4;  // maximum made ahead; unused with 0 workers
  // Device of the batches; for a GPU they are made in page-locked memory.
  c10::Device device = c10::kCPU;
};

// Copies batches to a device on a separate stream while the device works on
// earlier ones. Copies from page-locked memory do not block the host, only the
// stream that uses the batch. Neither the batch's nor the page-locked memory is
// reused before both streams have finished with it.
class DeviceCopier {
 public:
  // `non_blocking`: the batches are in page-locked memory; otherwise Begin
  // blocks until the copy is done. Not for a CPU.
  DeviceCopier(c10::Device device, bool non_blocking);

  // A batch that must not be used before `done`.
  struct Copy {
    Batch batch;
    c10::Event done;
  };

  // Enqueues the copy on the copying stream.
  Copy Begin(const Batch& batch) const;

  // Returns the batch for the device's current stream, whose later work waits
  // for the copy.
  Batch Use(Copy copy) const;

 private:
  const c10::Device device_;
  const bool non_blocking_;
  const c10::Stream stream_;
};

// Position in an epoch; the part of a loader that checkpoints store.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;  // batches of this epoch returned so far
};

// Returns a dataset batch by batch in a sampler's order, made ahead by worker
// threads; uint8 images [B, C, H, W] are passed through NormalizeImages, other
// data is unchanged. The batches do not depend on the number of workers.
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
// outlive it, and nothing else may use the sampler meanwhile.
class DataLoader {
 public:
  // Starts the workers, but no epoch: Next returns nullopt until StartEpoch or
  // Resume. Throws c10::Error for numbers below 1 (`workers`: below 0).
  DataLoader(const Dataset* dataset, DistributedSampler* sampler,
             DataLoaderConfig config);

  // Starts an epoch from its first batch: calls the sampler's set_epoch and
  // starts prefetching. Batches of an unfinished epoch are discarded.
  void StartEpoch(int64_t epoch);

  // Starts at a saved position: Next returns batch `position` of `epoch`, then
  // the remaining batches of the interrupted epoch. InvalidArgument if the
  // epoch has no such position (0 .. batches_per_epoch()).
  absl::Status Resume(LoaderState state);

  // Returns the next batch on `device`, or nullopt at the end of the epoch.
  // Blocks until it is made. A dataset's exception becomes Internal with the
  // batch's number, returned until another epoch starts.
  //
  // On a GPU the batch is for the device's current stream, which waits for the
  // batch's copy; the host does not. If the following batch is already made,
  // its copy has been started on a separate stream.
  absl::StatusOr<std::optional<Batch>> Next();

  // Returns the number of batches per epoch for this rank.
  int64_t batches_per_epoch() const;
  int64_t batch_size() const { return config_.batch_size; }
  LoaderState state() const { return state_; }

 private:
  // A batch being copied, nullopt after the last one, or an error.
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
  const std::optional<DeviceCopier> copier_;  // nullopt on a CPU
  std::optional<Copying> ahead_;              // batch state_.position
  Prefetcher prefetcher_;  // last: its threads must end before other members
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_DATA_LOADER_H_
