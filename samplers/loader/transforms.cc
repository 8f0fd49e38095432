#include "samplers/loader/transforms.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <array>
#include <type_traits>

namespace rankwise {
namespace {

using Table = std::array<float, 256>;

// What every pixel value becomes, in torchvision's arithmetic (fp32).
Table MakeTable() {
  Table table;
  for (size_t value = 0; value < table.size(); ++value) {
    const float scaled = static_cast<float>(value) / 255.0f;
    table[value] = (scaled - 0.5f) / 0.5f;
  }
  return table;
}

// Planes to interleaved channels. A constant number of channels unrolls the
// innermost loop.
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

}  // namespace rankwise
