// What happens to a batch of images on its way to the model.
#ifndef RANKWISE_SAMPLERS_LOADER_TRANSFORMS_H_
#define RANKWISE_SAMPLERS_LOADER_TRANSFORMS_H_

#include <ATen/core/Tensor.h>

namespace rankwise {

// torchvision's ToTensor and Normalize(0.5, 0.5), to the last bit: contiguous
// uint8 [B, C, H, W] becomes fp32 of the same shape between -1 and 1, laid out
// channels-last (NHWC strides), in pinned memory with `pin_memory`. A pixel has
// one of 256 values, so this is one table look-up per pixel, in the calling
// thread alone. Throws c10::Error for other tensors.
at::Tensor NormalizeImages(const at::Tensor& images, bool pin_memory = false);

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_TRANSFORMS_H_
