#include "parallel/sharded/order/unit_passes.h"

#include "gtest/gtest.h"

namespace rankwise {
namespace {

// Each section has a unit of 100 elements.
UnitLayout Chain(size_t length) {
  UnitLayout chain;
  for (size_t i = 0; i < length; ++i) {
    chain.units.push_back({100, 100});
    chain.sections.push_back({{i, 100}});
  }
  return chain;
}

UnitMemory MemoryOf(const UnitLayout& layout, const UnitOrderConfig& order) {
  return UnitMemory(layout, order, {.zero = order.zero, .ranks = 8});
}

int64_t PeakOf(const UnitOrderConfig& order) {
  UnitMemory memory = MemoryOf(Chain(4), order);
  memory.RunMicroBatches(1);
  return memory.peak();
}

TEST(UnitMemoryTest, Zero3HoldsOneUnitTheNextMessageAndTwoReductions) {
  // The gathered unit and its gradients, the message of the next unit, and the
  // inputs of two reduce-scatters in flight.
  EXPECT_EQ(PeakOf({.zero = 3}), 400 * (2 + 1 + 2));
  // The units and the gradients stay allocated and are not counted.
  EXPECT_EQ(PeakOf({.zero = 1}), 400 * 2);
}

TEST(UnitMemoryTest, AStageReducesItsGradientsWhenItHasThoseOfAllMicroBatches) {
  const SectionRange first = {0, 2}, second = {2, 4};
  UnitMemory memory =
      MemoryOf(Chain(4), {.zero = 2, .interleave_micro_batches = true});
  memory.Forward(first);
  memory.Forward(second);
  memory.Backward(second, /*reduces=*/false);
  memory.Complete(second);
  EXPECT_EQ(memory.peak(), 400 * (2 + 1)) << "before the first has gradients";
  memory.Backward(first, /*reduces=*/false);
  memory.Complete(first);
  memory.Finish(/*updates=*/true);
  EXPECT_EQ(memory.peak(), 400 * (2 + 2)) << "two are still in flight";
}

TEST(UnitMemoryTest, AUnitThatIsTiedOnItsRankIsReducedLast) {
  // The first unit is large: reducing it in Complete would add 4 * 1000 bytes.
  const UnitLayout layout = {.units = {{1000, 1000}, {100, 100}},
                             .tied = {0},
                             .sections = {{{0, 1000}}, {{1, 100}}, {{0}}}};
  UnitMemory memory =
      MemoryOf(layout, {.zero = 2, .interleave_micro_batches = true});
  memory.Forward(memory.All());
  memory.Backward(memory.All(), /*reduces=*/false);
  EXPECT_EQ(memory.peak(), 4 * 1100);
  memory.Complete(memory.All());
  EXPECT_EQ(memory.peak(), 4 * 1200);
  memory.Finish(/*updates=*/true);
  EXPECT_EQ(memory.peak(), 4 * (1000 + 1000 + 100)) << "one is in flight";
}

}  // namespace
}  // namespace rankwise
