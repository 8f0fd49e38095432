#include "samplers/loader/data_loader.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

bool HoldsImages(const Dataset& dataset) {
  return dataset.example_shape().size() == 3;
}

std::optional<BatchTransform> TransformFor(const Dataset& dataset,
                                           const TransformConfig& config) {
  if (!HoldsImages(dataset)) return std::nullopt;
  return BatchTransform(config, dataset.example_shape()[0]);
}

std::optional<DeviceCopier> CopierFor(const DataLoaderConfig& config) {
  if (config.device.is_cpu()) return std::nullopt;
  return DeviceCopier(config.device, config.pin_memory);
}

DataLoaderConfig Validated(const Dataset& dataset, DataLoaderConfig config) {
  const absl::Status status = DataLoader::Validate(dataset, config);
  TORCH_CHECK(status.ok(), std::string(status.message()));
  return config;
}

c10::impl::VirtualGuardImpl GuardOf(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

DeviceCopier::DeviceCopier(c10::Device device, bool non_blocking)
    : device_(device),
      non_blocking_(non_blocking),
      stream_(GuardOf(device).getStreamFromGlobalPool(device)) {}

DeviceCopier::Copy DeviceCopier::Begin(const Batch& batch) const {
  // The device's memory comes from this stream's share of the allocator, and
  // page-locked memory is kept until this stream has read it.
  const c10::StreamGuard guard(stream_);
  Batch copied = {ToDevice(batch.data), ToDevice(batch.target)};
  c10::Event done(device_.type());
  done.record(stream_);
  return {std::move(copied), std::move(done)};
}

at::Tensor DeviceCopier::ToDevice(const at::Tensor& tensor) const {
  return tensor.to(device_, non_blocking_);
}

Batch DeviceCopier::Use(Copy copy) const {
  const c10::Stream current = GuardOf(device_).getStream(device_);
  copy.done_.block(current);
  copy.batch_.data.record_stream(current);
  copy.batch_.target.record_stream(current);
  return std::move(copy.batch_);
}

absl::Status DataLoader::Validate(const Dataset& dataset,
                                  const DataLoaderConfig& config) {
  const auto at_least = [](const char* field, int64_t value, int64_t least) {
    return value >= least ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrCat(
                                "data loader: ", field, " is ", value,
                                "; it must be ", least, " or more"));
  };
  RETURN_IF_ERROR(at_least("batch_size", config.batch_size, 1));
  RETURN_IF_ERROR(at_least("workers", config.workers, 0));
  RETURN_IF_ERROR(at_least("prefetch_batches", config.prefetch_batches, 1));
  if (config.pin_memory && !(config.device.is_cuda() && at::hasCUDA())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data loader: pin_memory is for batches that go to a CUDA device, and "
        "the device is ",
        config.device.str(), at::hasCUDA() ? "" : " in a build without CUDA"));
  }
  if (!HoldsImages(dataset)) return absl::OkStatus();
  return BatchTransform::Validate(config.transform, dataset.example_shape()[0]);
}

DataLoader::DataLoader(const Dataset* dataset, Sampler* sampler,
                       DataLoaderConfig config)
    : dataset_(dataset),
      sampler_(sampler),
      config_(Validated(*dataset, std::move(config))),
      transform_(TransformFor(*dataset, config_.transform)),
      copier_(CopierFor(config_)),
      prefetcher_(config_.workers, config_.prefetch_batches) {}

int64_t DataLoader::batches_per_epoch() const {
  const int64_t rounding = config_.drop_last ? 0 : config_.batch_size - 1;
  return (sampler_->size() + rounding) / config_.batch_size;
}

int64_t DataLoader::examples_per_epoch() const {
  return std::min(sampler_->size(), batches_per_epoch() * config_.batch_size);
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
  // Workers of an abandoned epoch may still read its indices: they are shared.
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
  // Page-locked memory belongs to a CUDA context: it must be that of the
  // loader's device, not another one that is opened for it on device 0.
  const c10::OptionalDeviceGuard guard(
      config_.pin_memory ? std::optional(config_.device) : std::nullopt);
  Batch batch = dataset_->Gather(indices);
  if (transform_.has_value() && batch.data.scalar_type() == at::kByte) {
    batch.data = transform_->Apply(batch.data, config_.pin_memory);
  } else if (config_.pin_memory) {
    batch.data = batch.data.pin_memory();
  }
  if (config_.pin_memory) batch.target = batch.target.pin_memory();
  return batch;
}

absl::StatusOr<std::optional<Batch>> DataLoader::Next() {
  if (copier_.has_value()) return NextOnDevice();
  absl::StatusOr<std::optional<Batch>> batch = Take();
  if (batch.ok() && batch->has_value()) ++state_.position;
  return batch;
}

absl::StatusOr<std::optional<Batch>> DataLoader::Take() {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<std::optional<Batch>> batch = prefetcher_.Take();
  wait_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
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
  absl::StatusOr<std::optional<Batch>> batch = Take();
  if (!batch.ok()) return batch.status();
  if (!batch->has_value()) return std::nullopt;
  try {
    return copier_->Begin(**batch);
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat(
        "copying batch ", state_.position, " to ", config_.device.str(),
        " failed: ", error.what_without_backtrace()));
  }
}

}  // namespace rankwise
