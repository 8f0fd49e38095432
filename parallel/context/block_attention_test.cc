#include "parallel/context/block_attention.h"

#include "gtest/gtest.h"
#include "parallel/context/test_block_attention.h"

namespace rankwise {
namespace {

TEST(BlockAttentionTest, BlocksMergeToTheWholeByEitherWay) {
  for (int64_t kv_heads : {4, 2, 1}) {
    const BlockCase cases[] = {
        {AttendToBlock, AttendToBlockBackward, at::kDouble, 20, kv_heads,
         1e-12},
        {AttendToBlock, AttendToBlockBackward, at::kFloat, 8, kv_heads, 1e-5},
        {AttendToBlock, AttendToBlockBackward, at::kBFloat16, 8, kv_heads,
         2e-2},
        {AttendByProducts, AttendByProductsBackward, at::kDouble, 20, kv_heads,
         1e-12},
        {AttendByProducts, AttendByProductsBackward, at::kFloat, 8, kv_heads,
         1e-5},
        {AttendByProducts, AttendByProductsBackward, at::kHalf, 20, kv_heads,
         2e-3},
    };
    for (const BlockCase& c : cases) ExpectBlocksMerge(c, at::kCPU);
  }
}

}  // namespace
}  // namespace rankwise
