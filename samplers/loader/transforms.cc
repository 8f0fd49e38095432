#include "samplers/loader/transforms.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kValues = 256;  // that a pixel can take

absl::Status CheckPerChannel(const char* field, size_t values,
                             int64_t channels) {
  if (values <= 1 || static_cast<int64_t>(values) == channels) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("transform: ", field, " has ", values, " values; images of ",
                   channels, " channels need none, 1 or ", channels));
}

float PerChannel(const std::vector<double>& values, int64_t channel) {
  return static_cast<float>(values.size() == 1 ? values[0] : values[channel]);
}

// What every pixel value becomes, channel by channel.
std::vector<float> MakeTable(const TransformConfig& config, int64_t channels) {
  std::vector<float> table(channels * kValues);
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t value = 0; value < kValues; ++value) {
      float x = static_cast<float>(value) / 255.0f;
      if (!config.mean.empty()) x -= PerChannel(config.mean, channel);
      if (!config.std.empty()) x /= PerChannel(config.std, channel);
      table[channel * kValues + value] = x;
    }
  }
  return table;
}

// Planes to planes.
void LookUpPlanes(const float* table, const uint8_t* in, int64_t images,
                  int64_t channels, int64_t pixels, float* out) {
  for (int64_t plane = 0; plane < images * channels; ++plane) {
    const float* values = table + plane % channels * kValues;
    for (int64_t i = 0; i < pixels; ++i) out[i] = values[in[i]];
    in += pixels;
    out += pixels;
  }
}

// Planes to interleaved channels.
void LookUpInterleaved(const float* table, const uint8_t* in, int64_t images,
                       int64_t channels, int64_t pixels, float* out) {
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      const float* values = table + channel * kValues;
      float* to = out + channel;
      for (int64_t i = 0; i < pixels; ++i) to[i * channels] = values[in[i]];
      in += pixels;
    }
    out += channels * pixels;
  }
}

// The same for the three channels of colour images, in one sweep.
void LookUpColour(const float* table, const uint8_t* in, int64_t images,
                  int64_t pixels, float* out) {
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t i = 0; i < pixels; ++i) {
      out[0] = table[in[i]];
      out[1] = table[kValues + in[pixels + i]];
      out[2] = table[2 * kValues + in[2 * pixels + i]];
      out += 3;
    }
    in += 3 * pixels;
  }
}

}  // namespace

absl::Status BatchTransform::Validate(const TransformConfig& config,
                                      int64_t channels) {
  const bool resize = config.resize_height != 0 || config.resize_width != 0;
  if (resize && (config.resize_height < 1 || config.resize_width < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("transform: resize_height is ", config.resize_height,
                     " and resize_width is ", config.resize_width,
                     "; both must be 1 or more, or both 0 to leave the size"));
  }
  for (const double std : config.std) {
    if (!(std > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "transform: std has the value ", std, "; it must be above 0"));
    }
  }
  RETURN_IF_ERROR(CheckPerChannel("mean", config.mean.size(), channels));
  return CheckPerChannel("std", config.std.size(), channels);
}

BatchTransform::BatchTransform(const TransformConfig& config, int64_t channels)
    : config_(config), channels_(channels) {
  const absl::Status status = Validate(config, channels);
  TORCH_CHECK(status.ok(), std::string(status.message()));
  table_ = MakeTable(config, channels);
}

at::Tensor BatchTransform::Resize(const at::Tensor& images) const {
  if (config_.resize_height == 0) return images;
  if (images.numel() == 0) {  // ATen refuses empty batches
    return at::empty({images.size(0), channels_, config_.resize_height,
                      config_.resize_width},
                     at::kByte);
  }
  return at::_upsample_bilinear2d_aa(
             images, {config_.resize_height, config_.resize_width},
             /*align_corners=*/false)
      .contiguous();
}

at::Tensor BatchTransform::Apply(const at::Tensor& images,
                                 bool pin_memory) const {
  TORCH_CHECK(images.scalar_type() == at::kByte && images.dim() == 4 &&
                  images.size(1) == channels_ && images.is_contiguous(),
              "images must be contiguous uint8 [B, ", channels_,
              ", H, W], not ", images.scalar_type(), " ", images.sizes());
  const at::Tensor from = Resize(images);
  const auto layout = config_.channels_last ? at::MemoryFormat::ChannelsLast
                                            : at::MemoryFormat::Contiguous;
  at::Tensor to =
      at::empty(from.sizes(),
                at::TensorOptions(config_.to_tensor ? at::kFloat : at::kByte)
                    .pinned_memory(pin_memory),
                layout);
  if (!config_.to_tensor) return to.copy_(from);
  const uint8_t* in = from.const_data_ptr<uint8_t>();
  float* out = to.mutable_data_ptr<float>();
  const int64_t count = from.size(0), pixels = from.size(2) * from.size(3);
  if (!config_.channels_last) {
    LookUpPlanes(table_.data(), in, count, channels_, pixels, out);
  } else if (channels_ == 3) {
    LookUpColour(table_.data(), in, count, pixels, out);
  } else {
    LookUpInterleaved(table_.data(), in, count, channels_, pixels, out);
  }
  return to;
}

}  // namespace rankwise
