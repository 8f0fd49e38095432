#include "trainers/models/division.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

TEST(DivisionTest, PartsMakeTheWholeAgain) {
  const torch::Tensor whole = at::rand({12, 5});
  const std::vector<Division> divisions = {{.dim = 0, .blocks = {12}},
                                           {.dim = 0, .blocks = {4, 4, 4}},
                                           {.dim = 0, .blocks = {8, 2, 2}},
                                           {.dim = 1, .blocks = {5}}};
  OnRanks(2, [&](Communicator& comm) {
    const TensorParallel tp{.group = comm.world()};
    for (const Division& division : divisions) {
      const torch::Tensor part = PartOf(whole, division, tp);
      // 5 columns are padded to 3 per rank.
      EXPECT_EQ(part.numel(), division.dim == 0 ? 30 : 36);
      EXPECT_TRUE(at::equal(WholeOf(part, division, tp), whole));
    }
    // The first rank has the first two of each block of 4 rows.
    EXPECT_TRUE(at::equal(PartOf(whole, divisions[1], tp)[2],
                          whole[4 + 2 * tp.place()]));
    // Four rows of the first block, one of the second.
    EXPECT_TRUE(
        at::equal(PartOf(whole, divisions[2], tp)[4], whole[8 + tp.place()]));
  });
}

TEST(ForkedGeneratorTest, StreamsDifferAndTheGeneratorGoesOnAsBefore) {
  const auto draw = [](int stream) {
    const ForkedGenerator fork(at::kCPU, static_cast<uint64_t>(stream));
    return at::rand({8});
  };
  at::manual_seed(3);
  const torch::Tensor undisturbed = at::rand({8});
  at::manual_seed(3);
  const torch::Tensor first = draw(0), again = draw(0), second = draw(1);
  EXPECT_TRUE(at::equal(first, again));
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_TRUE(at::equal(at::rand({8}), undisturbed));
  at::manual_seed(4);
  EXPECT_FALSE(at::equal(draw(0), first)) << "they follow from the seed";
}

}  // namespace
}  // namespace rankwise
