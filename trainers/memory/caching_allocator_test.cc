// Tests through PyTorch's own interface, as used by tensors.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "trainers/memory/measured_memory.h"

namespace rankwise {
namespace {

class CachingAllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "under AddressSanitizer freed memory is not used again";
#endif
    KeepFreedMemory();
  }
};

TEST_F(CachingAllocatorTest, BlocksHoldWhatIsAskedForAndAreAligned) {
  std::vector<std::pair<c10::DataPtr, size_t>> blocks;
  for (size_t bytes = 1; bytes < 3'000'000; bytes += 1 + bytes / 3) {
    c10::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.get()) % 64, 0u);
    std::memset(data.mutable_get(), static_cast<int>(bytes % 251), bytes);
    blocks.emplace_back(std::move(data), bytes);
  }
  for (const auto& [data, bytes] : blocks) {
    const auto* values = static_cast<const unsigned char*>(data.get());
    EXPECT_EQ(values[0], bytes % 251);
    EXPECT_EQ(values[bytes - 1], bytes % 251);
  }
}

// glibc's own free lists would serve another thread last.
TEST_F(CachingAllocatorTest, WhatAnotherThreadFreesIsUsedNext) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  c10::DataPtr block = allocator->allocate(1 << 20);
  const c10::DataPtr other = allocator->allocate(1 << 20);
  const void* const address = block.get();
  std::thread([&block] { block.clear(); }).join();
  EXPECT_EQ(allocator->allocate((1 << 20) - 1000).get(), address);
}

TEST_F(CachingAllocatorTest, NothingIsAskedForIsNoBlock) {
  EXPECT_EQ(c10::GetCPUAllocator()->allocate(0).get(), nullptr);
}

TEST_F(CachingAllocatorTest, FailsAsPyTorchsDoesAndGoesOn) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  allocator->allocate(1 << 20).clear();
  EXPECT_THROW(allocator->allocate(size_t{1} << 60), c10::Error);
  EXPECT_NE(allocator->allocate(1 << 20).get(), nullptr);
}

}  // namespace
}  // namespace rankwise
