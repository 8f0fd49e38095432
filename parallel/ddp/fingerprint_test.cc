#include "parallel/ddp/fingerprint.h"

#include <set>
#include <string>

#include "ATen/Functions.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

TEST(FingerprintTest, ChangesWithEveryByteAndWithTheLength) {
  std::set<uint64_t> seen;
  for (size_t size : {0, 1, 7, 8, 31, 32, 33, 100}) {
    std::string bytes(size, '\0');
    EXPECT_TRUE(seen.insert(FingerprintBytes(bytes.data(), size)).second);
    for (char& byte : bytes) {
      for (int bit = 0; bit < 8; ++bit) {
        byte = static_cast<char>(1 << bit);
        EXPECT_TRUE(seen.insert(FingerprintBytes(bytes.data(), size)).second);
      }
      byte = 0;
    }
  }
}

TEST(FingerprintTest, SeesOneFlippedBitOfATensor) {
  at::Tensor x = at::ones({1000});
  const uint64_t before = FingerprintTensor(x);
  EXPECT_EQ(FingerprintTensor(x.clone()), before);
  x[517] += 1e-7;
  EXPECT_NE(FingerprintTensor(x), before);
}

TEST(FingerprintTest, DoesNotDependOnTheMemoryLayout) {
  const at::Tensor x = at::arange(2 * 3 * 4 * 5).view({2, 3, 4, 5});
  EXPECT_EQ(FingerprintTensor(x.contiguous(at::MemoryFormat::ChannelsLast)),
            FingerprintTensor(x));
}

}  // namespace
}  // namespace rankwise
