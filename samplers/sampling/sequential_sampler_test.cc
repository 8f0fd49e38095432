#include "samplers/sampling/sequential_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SequentialSamplerTest, GivesTheSameOrderInEveryEpoch) {
  auto sampler = SequentialSampler::Create(4);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  EXPECT_EQ((*sampler)->size(), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    (*sampler)->set_epoch(epoch);
    EXPECT_THAT((*sampler)->Indices(), ElementsAre(0, 1, 2, 3));
  }
}

TEST(SequentialSamplerTest, OfAnEmptyDataset) {
  EXPECT_THAT((*SequentialSampler::Create(0))->Indices(), IsEmpty());
}

TEST(SequentialSamplerTest, RefusesANegativeSize) {
  EXPECT_THAT(std::string(SequentialSampler::Create(-1).status().message()),
              HasSubstr("dataset size is -1"));
}

}  // namespace
}  // namespace rankwise
