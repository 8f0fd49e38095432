#include "parallel/context/block_attention.h"

#include "gtest/gtest.h"
#include "parallel/context/test_block_attention.h"

namespace rankwise {
namespace {

TEST(BlockAttentionTest, BlocksMergeToTheWholeByEitherWay) {
  const BlockCase cases[] = {
      {AttendToBlock, AttendToBlockBackward, at::kDouble, 20, 1e-12},
      {AttendToBlock, AttendToBlockBackward, at::kFloat, 8, 1e-5},
      {AttendToBlock, AttendToBlockBackward, at::kBFloat16, 8, 2e-2},
      {AttendByProducts, AttendByProductsBackward, at::kDouble, 20, 1e-12},
      {AttendByProducts, AttendByProductsBackward, at::kFloat, 8, 1e-5},
      {AttendByProducts, AttendByProductsBackward, at::kHalf, 20, 2e-3},
  };
  for (const BlockCase& c : cases) ExpectBlocksMerge(c, at::kCPU);
}

}  // namespace
}  // namespace rankwise
