#include "samplers/loader/transforms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

at::Tensor RandomImages(at::IntArrayRef shape) {
  return at::randint(256, shape, at::detail::createCPUGenerator(1),
                     at::TensorOptions(at::kByte));
}

at::Tensor OneForEachChannel(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(at::kFloat).view({-1, 1, 1});
}

// torchvision's ToTensor and Normalize, operator by operator.
at::Tensor Torchvision(const at::Tensor& images,
                       const std::vector<double>& mean,
                       const std::vector<double>& std) {
  return images.to(at::kFloat)
      .div(255)
      .sub_(OneForEachChannel(mean))
      .div_(OneForEachChannel(std));
}

// Every value a pixel can take, in every channel.
at::Tensor AllValues() {
  return at::arange(256, at::kByte).view({1, 1, 16, 16}).repeat({2, 3, 1, 1});
}

std::string MessageFor(const TransformConfig& config, int64_t channels) {
  const absl::Status status = BatchTransform::Validate(config, channels);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST(TransformsTest, IsBitEqualToTorchvision) {
  for (const bool channels_last : {false, true}) {
    const BatchTransform transform({.channels_last = channels_last}, 3);
    for (const at::Tensor& images :
         {AllValues(), RandomImages({5, 3, 32, 32})}) {
      const at::Tensor result = transform.Apply(images);
      EXPECT_TRUE(result.equal(Torchvision(images, {0.5}, {0.5})));
      EXPECT_EQ(result.is_contiguous(at::MemoryFormat::ChannelsLast),
                channels_last);
    }
  }
}

TEST(TransformsTest, NormalizesChannelByChannel) {
  const std::vector<double> mean = {0.4914, 0.4822, 0.4465};
  const std::vector<double> std = {0.2470, 0.2435, 0.2616};
  for (const bool channels_last : {false, true}) {
    const BatchTransform transform(
        {.mean = mean, .std = std, .channels_last = channels_last}, 3);
    EXPECT_TRUE(transform.Apply(AllValues())
                    .equal(Torchvision(AllValues(), mean, std)));
  }
}

TEST(TransformsTest, TakesAnyNumberOfChannels) {
  for (const int64_t channels : {1, 2, 4}) {
    const at::Tensor images = RandomImages({3, channels, 5, 7});
    for (const bool channels_last : {false, true}) {
      const BatchTransform transform({.channels_last = channels_last},
                                     channels);
      EXPECT_TRUE(
          transform.Apply(images).equal(Torchvision(images, {0.5}, {0.5})));
    }
  }
}

TEST(TransformsTest, ScalesOnlyWithoutMeanAndStd) {
  const BatchTransform transform({.mean = {}, .std = {}}, 3);
  EXPECT_TRUE(
      transform.Apply(AllValues()).equal(AllValues().to(at::kFloat).div(255)));
}

TEST(TransformsTest, LeavesBytesWithoutToTensor) {
  const at::Tensor images = RandomImages({2, 3, 4, 4});
  const BatchTransform transform({.to_tensor = false, .channels_last = true},
                                 3);
  const at::Tensor result = transform.Apply(images);
  EXPECT_EQ(result.scalar_type(), at::kByte);
  EXPECT_TRUE(result.equal(images));
  EXPECT_TRUE(result.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(TransformsTest, TakesAnEmptyBatch) {
  const at::Tensor none = at::empty({0, 3, 8, 8}, at::kByte);
  EXPECT_EQ(BatchTransform({}, 3).Apply(none).sizes(),
            at::IntArrayRef({0, 3, 8, 8}));
  const BatchTransform resize({.resize_height = 4, .resize_width = 2}, 3);
  EXPECT_EQ(resize.Apply(none).sizes(), at::IntArrayRef({0, 3, 4, 2}));
}

at::Tensor ReadBytes(std::istream& in, at::IntArrayRef shape) {
  at::Tensor bytes = at::empty(shape, at::kByte);
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    int value;
    in >> value;
    bytes.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(value);
  }
  return bytes;
}

TEST(TransformsTest, ResizesAsPython) {
  std::ifstream goldens("samplers/goldens/resize.txt");
  std::string line;
  int lines = 0;
  while (std::getline(goldens, line)) {
    std::istringstream in(line);
    int64_t b, c, h, w, to_h, to_w;
    char colon;
    in >> b >> c >> h >> w >> to_h >> to_w >> colon;
    const at::Tensor images = ReadBytes(in, {b, c, h, w});
    in >> colon;
    const at::Tensor expected = ReadBytes(in, {b, c, to_h, to_w});
    const BatchTransform transform(
        {.resize_height = to_h, .resize_width = to_w, .to_tensor = false}, c);
    // Rounding may differ by one between processors.
    EXPECT_TRUE(transform.Apply(images).to(at::kInt).allclose(
        expected.to(at::kInt), 0, 1));
    ++lines;
  }
  EXPECT_EQ(lines, 3);
}

TEST(TransformsTest, NormalizesWhatItResized) {
  const at::Tensor images = RandomImages({2, 3, 6, 6});
  const TransformConfig bytes = {
      .resize_height = 9, .resize_width = 4, .to_tensor = false};
  TransformConfig all = bytes;
  all.to_tensor = true;
  all.channels_last = true;
  EXPECT_TRUE(BatchTransform(all, 3).Apply(images).equal(
      Torchvision(BatchTransform(bytes, 3).Apply(images), {0.5}, {0.5})));
}

TEST(TransformsTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(MessageFor({.std = {0.5, 0.0, 0.5}}, 3),
              HasSubstr("std has the value 0; it must be above 0"));
  EXPECT_THAT(MessageFor({.std = {-1}}, 3), HasSubstr("std has the value -1"));
  EXPECT_THAT(MessageFor({.mean = {0.1, 0.2}}, 3),
              HasSubstr("mean has 2 values; images of 3 channels"));
  EXPECT_THAT(MessageFor({.resize_height = 8}, 3),
              HasSubstr("resize_height is 8 and resize_width is 0"));
  EXPECT_THAT(MessageFor({.resize_height = -8, .resize_width = 8}, 3),
              HasSubstr("resize_height is -8"));
}

TEST(TransformsTest, ThrowsOnOtherTensors) {
  const BatchTransform transform({}, 3);
  EXPECT_THROW(transform.Apply(at::empty({2, 3, 4, 4}, at::kFloat)),
               c10::Error);
  EXPECT_THROW(transform.Apply(at::empty({2, 1, 4, 4}, at::kByte)), c10::Error);
  EXPECT_THROW(transform.Apply(at::empty({3, 4, 4}, at::kByte)), c10::Error);
}

}  // namespace
}  // namespace rankwise
