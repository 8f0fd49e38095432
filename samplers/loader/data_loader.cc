#include "samplers/loader/data_loader.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

DataLoaderConfig Checked(const DataLoaderConfig& config) {
  TORCH_CHECK(config.batch_size >= 1 && config.workers >= 0 &&
                  config.prefetch_batches >= 1,
              "data loader: batch_size ", config.batch_size, ", workers ",
              config.workers, ", prefetch_batches ", config.prefetch_batches);
  return config;
}

using Table = std::array<float, 256>;

// Returns the result for every pixel value, in torchvision's arithmetic (fp32).
Table MakeTable() {
  Table table;
  for (size_t value = 0; value < table.size(); ++value) {
    const float scaled = static_cast<float>(value) / 255.0f;
    table[value] = (scaled - 0.5f) / 0.5f;
  }
  return table;
}

// Converts planes to interleaved channels. A constant number of channels
// unrolls the innermost loop.
template <typename Channels>
void LookUp(const uint8_t* in, int64_t images, Channels channels,
            int64_t pixels, float* out) {
  static const Table table = MakeTable();
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t i = 0; i < pixels; ++i) {
      for (int64_t channel = 0; channel < channels; ++channel)
        *out++ = table[in[channel * pixels + i]];
    }
    in += channels * pixels;
  }
}

c10::impl::VirtualGuardImpl GuardOf(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

at::Tensor NormalizeImages(const at::Tensor& images, bool pin_memory) {
  TORCH_CHECK(images.scalar_type() == at::kByte && images.dim() == 4 &&
                  images.is_contiguous(),
              "images must be contiguous uint8 [B, C, H, W], not ",
              images.scalar_type(), " ", images.sizes());
  at::Tensor normalized = at::empty(
      images.sizes(), at::TensorOptions(at::kFloat).pinned_memory(pin_memory),
      at::MemoryFormat::ChannelsLast);
  const uint8_t* in = images.const_data_ptr<uint8_t>();
  float* out = normalized.mutable_data_ptr<float>();
  const int64_t count = images.size(0), channels = images.size(1);
  const int64_t pixels = images.size(2) * images.size(3);
  if (channels == 3) {
    LookUp(in, count, std::integral_constant<int64_t, 3>(), pixels, out);
  } else {
    LookUp(in, count, channels, pixels, out);
  }
  return normalized;
}

DeviceCopier::DeviceCopier(c10::Device device, bool non_blocking)
    : device_(device),
      non_blocking_(non_blocking),
      stream_(GuardOf(device).getStreamFromGlobalPool(device)) {}

DeviceCopier::Copy DeviceCopier::Begin(const Batch& batch) const {
  // Allocates device memory from this stream's pool, and holds page-locked
  // memory until this stream has read it.
  const c10::StreamGuard guard(stream_);
  Batch copied = {batch.data.to(device_, non_blocking_),
                  batch.target.to(device_, non_blocking_)};
  c10::Event done(device_.type());
  done.record(stream_);
  return {std::move(copied), std::move(done)};
}

Batch DeviceCopier::Use(Copy copy) const {
  const c10::Stream current = GuardOf(device_).getStream(device_);
  copy.done.block(current);
  copy.batch.data.record_stream(current);
  copy.batch.target.record_stream(current);
  return std::move(copy.batch);
}

DataLoader::DataLoader(const Dataset* dataset, DistributedSampler* sampler,
                       DataLoaderConfig config)
    : dataset_(dataset),
      sampler_(sampler),
      config_(Checked(config)),
      pin_memory_(config.device.is_cuda()),
      copier_(config.device.is_cpu()
                  ? std::nullopt
                  : std::optional<DeviceCopier>(std::in_place, config.device,
                                                pin_memory_)),
      prefetcher_(config_.workers, config_.prefetch_batches) {}

int64_t DataLoader::batches_per_epoch() const {
  return (sampler_->size() + config_.batch_size - 1) / config_.batch_size;
}

void DataLoader::StartEpoch(int64_t epoch) {
  state_ = {.epoch = epoch, .position = 0};
  Start();
}

absl::Status DataLoader::Resume(LoaderState state) {
  if (state.position < 0 || state.position > batches_per_epoch()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data loader: cannot resume at batch ", state.position, " of epoch ",
        state.epoch, ", which has ", batches_per_epoch(),
        " batches for this rank; was the state saved with another dataset "
        "size, batch size or world size?"));
  }
  state_ = state;
  Start();
  return absl::OkStatus();
}

void DataLoader::Start() {
  ahead_.reset();
  sampler_->set_epoch(state_.epoch);
  // Shared, because workers of an abandoned epoch may still read its indices.
  prefetcher_.Start(
      [this, indices = std::make_shared<const std::vector<int64_t>>(
                 sampler_->Indices())](int64_t number) {
        return Make(absl::MakeConstSpan(*indices).subspan(
            number * config_.batch_size, config_.batch_size));
      },
      state_.position, batches_per_epoch());
}

absl::StatusOr<Batch> DataLoader::Make(
    absl::Span<const int64_t> indices) const {
  // Page-locked memory belongs to a CUDA context, which must be that of the
  // loader's device; otherwise a context would be created on device 0.
  const c10::OptionalDeviceGuard guard(
      pin_memory_ ? std::optional(config_.device) : std::nullopt);
  Batch batch = dataset_->Gather(indices);
  if (batch.data.dim() == 4 && batch.data.scalar_type() == at::kByte) {
    batch.data = NormalizeImages(batch.data, pin_memory_);
  } else if (pin_memory_) {
    batch.data = batch.data.pin_memory();
  }
  if (pin_memory_) batch.target = batch.target.pin_memory();
  return batch;
}

absl::StatusOr<std::optional<Batch>> DataLoader::Next() {
  if (copier_.has_value()) return NextOnDevice();
  ASSIGN_OR_RETURN(std::optional<Batch> batch, prefetcher_.Take());
  if (batch.has_value()) ++state_.position;
  return batch;
}

absl::StatusOr<std::optional<Batch>> DataLoader::NextOnDevice() {
  if (!ahead_.has_value()) ahead_ = BeginCopy();
  if (!ahead_->ok()) return ahead_->status();
  if (!(*ahead_)->has_value()) return std::nullopt;
  Batch batch = copier_->Use(***std::move(ahead_));
  ahead_.reset();
  ++state_.position;
  if (prefetcher_.Ready()) ahead_ = BeginCopy();
  return batch;
}

DataLoader::Copying DataLoader::BeginCopy() {
  ASSIGN_OR_RETURN(std::optional<Batch> batch, prefetcher_.Take());
  if (!batch.has_value()) return std::nullopt;
  try {
    return copier_->Begin(*batch);
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat(
        "copying batch ", state_.position, " to ", config_.device.str(),
        " failed: ", error.what_without_backtrace()));
  }
}

}  // namespace rankwise
