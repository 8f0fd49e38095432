#include "samplers/loader/transforms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace rankwise {
namespace {

at::Tensor RandomImages(at::IntArrayRef shape) {
  return at::randint(256, shape, at::detail::createCPUGenerator(1),
                     at::TensorOptions(at::kByte));
}

// torchvision's ToTensor and Normalize, operator by operator.
at::Tensor Torchvision(const at::Tensor& images) {
  return images.to(at::kFloat).div(255).sub_(0.5).div_(0.5);
}

// Every value a pixel can take, in every channel.
at::Tensor AllValues() {
  return at::arange(256, at::kByte).view({1, 1, 16, 16}).repeat({2, 3, 1, 1});
}

TEST(TransformsTest, IsBitEqualToTorchvisionAndChannelsLast) {
  for (const at::Tensor& images : {AllValues(), RandomImages({5, 3, 32, 32})}) {
    const at::Tensor result = NormalizeImages(images);
    EXPECT_TRUE(result.equal(Torchvision(images)));
    EXPECT_TRUE(result.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST(TransformsTest, TakesAnyNumberOfChannels) {
  for (const int64_t channels : {1, 2, 4}) {
    const at::Tensor images = RandomImages({3, channels, 5, 7});
    EXPECT_TRUE(NormalizeImages(images).equal(Torchvision(images)));
  }
}

TEST(TransformsTest, TakesAnEmptyBatch) {
  EXPECT_EQ(NormalizeImages(at::empty({0, 3, 8, 8}, at::kByte)).sizes(),
            at::IntArrayRef({0, 3, 8, 8}));
}

TEST(TransformsTest, ThrowsOnOtherTensors) {
  EXPECT_THROW(NormalizeImages(at::empty({2, 3, 4, 4}, at::kFloat)),
               c10::Error);
  EXPECT_THROW(NormalizeImages(at::empty({3, 4, 4}, at::kByte)), c10::Error);
  EXPECT_THROW(
      NormalizeImages(at::empty({2, 3, 4, 4}, at::kByte).transpose(2, 3)),
      c10::Error);
}

}  // namespace
}  // namespace rankwise
