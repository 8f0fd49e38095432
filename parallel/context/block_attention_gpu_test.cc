// Block attention by GPU kernels.

#include "gtest/gtest.h"
#include "parallel/context/block_attention.h"
#include "parallel/context/test_block_attention.h"
#include "parallel/device/require_gpus.h"

namespace rankwise {
namespace {

TEST(BlockAttentionGpuTest, BlocksMergeToTheWhole) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  if (!GpusCompute()) GTEST_SKIP() << "virtual GPUs compute no attention";
  for (int64_t kv_heads : {4, 2, 1}) {
    const BlockCase cases[] = {
        {AttendToBlock, AttendToBlockBackward, at::kBFloat16, 64, kv_heads,
         2e-2},
        {AttendToBlock, AttendToBlockBackward, at::kHalf, 64, kv_heads, 2e-3},
        {AttendToBlock, AttendToBlockBackward, at::kHalf, 20, kv_heads, 2e-3},
        {AttendToBlock, AttendToBlockBackward, at::kFloat, 64, kv_heads, 1e-5},
        {AttendToBlock, AttendToBlockBackward, at::kDouble, 20, kv_heads,
         1e-12},
    };
    for (const BlockCase& c : cases) ExpectBlocksMerge(c, at::kCUDA);
  }
}

}  // namespace
}  // namespace rankwise
