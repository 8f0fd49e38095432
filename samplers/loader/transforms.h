#ifndef RANKWISE_SAMPLERS_LOADER_TRANSFORMS_H_
#define RANKWISE_SAMPLERS_LOADER_TRANSFORMS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {

// What happens to a batch of uint8 images on its way to the model, in order:
// Resize, ToTensor, Normalize.
struct TransformConfig {
  // Resize to this many pixels (bilinear, antialiased, on uint8, as torchvision
  // does); 0 and 0: leave the size.
  int64_t resize_height = 0;
  int64_t resize_width = 0;
  // ToTensor: 0..255 becomes fp32 0..1. Without it images stay uint8, and
  // nothing is normalised.
  bool to_tensor = true;
  // Normalize: (x - mean) / std. One value for all channels, or one for each;
  // empty: none.
  std::vector<double> mean = {0.5};
  std::vector<double> std = {0.5};
  // Lay the result out channels-last (NHWC strides; the shape stays NCHW).
  bool channels_last = false;
};

// The transforms of a TransformConfig, applied to whole batches. A pixel takes
// one of 256 values, so scaling and normalising is one table look-up per pixel;
// the table is made with torchvision's arithmetic (fp32: x / 255, - mean,
// / std), hence the results are bit-equal to it.
//
// Thread-safe after construction. Runs in the calling thread alone, but for
// Resize, which uses ATen's intra-op threads of that thread.
class BatchTransform {
 public:
  // InvalidArgument with the field and its value, when `config` makes no sense
  // for images of so many channels.
  static absl::Status Validate(const TransformConfig& config, int64_t channels);

  // The config must pass Validate.
  BatchTransform(const TransformConfig& config, int64_t channels);

  // uint8 [B, C, H, W] in, contiguous; fp32 (or uint8) [B, C, H', W'] out, in
  // pinned memory if asked.
  at::Tensor Apply(const at::Tensor& images, bool pin_memory = false) const;

 private:
  at::Tensor Resize(const at::Tensor& images) const;

  const TransformConfig config_;
  const int64_t channels_;
  std::vector<float> table_;  // [channel][256]
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_TRANSFORMS_H_
