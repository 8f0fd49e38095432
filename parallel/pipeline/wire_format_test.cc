#include "parallel/pipeline/wire_format.h"

#include <vector>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using testing::ElementsAre;

TEST(WireFormatTest, ImagesTravelChannelsLast) {
  const at::Tensor image =
      at::arange(120, at::kFloat).view({2, 3, 4, 5}).requires_grad_();
  const at::Tensor wire = ToWire(image);
  EXPECT_TRUE(wire.is_contiguous());
  EXPECT_FALSE(wire.requires_grad());
  EXPECT_EQ(wire.sizes(), WireShape({2, 3, 4, 5}));
  const at::Tensor received = FromWire(wire.clone());
  EXPECT_TRUE(at::equal(received, image));
  EXPECT_TRUE(received.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(WireFormatTest, WhatIsChannelsLastAlreadyIsNotCopied) {
  const at::Tensor image =
      at::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(ToWire(image).data_ptr(), image.data_ptr());
  const at::Tensor rows = at::zeros({2, 3});
  EXPECT_EQ(ToWire(rows).data_ptr(), rows.data_ptr());
}

TEST(WireFormatTest, OthersTravelRowByRowInTheTypeTheyHave) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor rows = at::arange(6, type).view({2, 3}).t();
    const at::Tensor wire = ToWire(rows);
    EXPECT_TRUE(wire.is_contiguous());
    EXPECT_EQ(wire.scalar_type(), type);
    EXPECT_THAT(WireShape({3, 2}), ElementsAre(3, 2));
    EXPECT_TRUE(at::equal(FromWire(wire), rows));
  }
}

TEST(WireBuffersTest, ABufferIsUsedAgainOnceNothingSharesIt) {
  WireBuffers buffers(at::kCPU);
  at::Tensor first = buffers.Take({2, 3, 4, 5});
  const void* const bytes = first.data_ptr();
  at::Tensor view = FromWire(first);
  first.reset();
  EXPECT_NE(buffers.Take({2, 3, 4, 5}).data_ptr(), bytes);  // the view
  at::Tensor leaf = view.detach().requires_grad_();
  view.reset();
  at::Tensor result = at::sin(leaf);
  leaf.reset();
  EXPECT_NE(buffers.Take({2, 3, 4, 5}).data_ptr(), bytes);  // its graph
  EXPECT_EQ(buffers.count(), 2);
  result.reset();
  EXPECT_EQ(buffers.Take({2, 3, 4, 5}).data_ptr(), bytes);
  EXPECT_EQ(buffers.count(), 2);
}

TEST(WireBuffersTest, ShapesAndTypesAreKeptApart) {
  WireBuffers buffers(at::kCPU);
  buffers.Take({2, 3});
  EXPECT_THAT(buffers.Take({3, 2}).sizes().vec(), ElementsAre(3, 2));
  EXPECT_EQ(buffers.Take({2, 3}, at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_EQ(buffers.count(), 3);
}

TEST(WireBuffersTest, FilledOnesHoldSmallNumbersThatDiffer) {
  WireBuffers buffers(at::kCPU, /*filled=*/true);
  const at::Tensor buffer = buffers.Take({7, 5});
  EXPECT_LE(buffer.abs().max().item<float>(), 1e-3);
  EXPECT_GT(buffer.std().item<float>(), 1e-4);
  // None for which a processor would leave its fast path.
  const at::Tensor others = buffer.flatten().slice(0, 1);
  EXPECT_GT(others.abs().min().item<float>(), 1e-20);
}

}  // namespace
}  // namespace rankwise
