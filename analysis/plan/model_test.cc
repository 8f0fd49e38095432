#include "analysis/plan/model.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

TEST(ModelTest, ABlocksTensorsAreItsParameters) {
  const Model model{"even", 2, 64, 4, 32, 100};
  const std::vector<double> tensors = model.BlockTensors();
  EXPECT_EQ(std::accumulate(tensors.begin(), tensors.end(), 0.0),
            model.BlockParameters());
}

}  // namespace
}  // namespace rankwise::plan
