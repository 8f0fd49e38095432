#include "samplers/sampling/random_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "samplers/sampling/captured_warnings.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string MessageFor(int64_t size, const RandomSamplerConfig& config) {
  return std::string(RandomSampler::Create(size, config).status().message());
}

TEST(RandomSamplerTest, EqualsPython) {
  std::ifstream goldens("samplers/goldens/random_sampler.txt");
  std::string line;
  int lines = 0;
  while (std::getline(goldens, line)) {
    SCOPED_TRACE(line);
    std::istringstream in(line);
    int64_t size, num_samples;
    RandomSamplerConfig config;
    char colon;
    in >> size >> num_samples >> config.seed >> config.replacement >> colon;
    config.num_samples = num_samples;
    const std::vector<int64_t> expected(std::istream_iterator<int64_t>(in), {});
    auto sampler = RandomSampler::Create(size, config);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    EXPECT_EQ((*sampler)->size(), num_samples);
    EXPECT_EQ((*sampler)->Indices(), expected);
    ++lines;
  }
  EXPECT_EQ(lines, 28);
}

TEST(RandomSamplerTest, AnEpochIsTheSeedMovedOn) {
  auto seed_5 = *RandomSampler::Create(50, {.seed = 5});
  auto seed_8 = *RandomSampler::Create(50, {.seed = 8});
  seed_5->set_epoch(3);
  EXPECT_EQ(seed_5->Indices(), seed_8->Indices());
  seed_5->set_epoch(4);
  EXPECT_NE(seed_5->Indices(), seed_8->Indices());
}

TEST(RandomSamplerTest, NoticesAForgottenSetEpoch) {
  CapturedWarnings warnings;
  auto sampler = *RandomSampler::Create(5, {});
  sampler->Indices();
  EXPECT_THAT(warnings.messages(), IsEmpty());
  sampler->Indices();
  sampler->Indices();
  EXPECT_THAT(warnings.messages(), SizeIs(1));
}

TEST(RandomSamplerTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(MessageFor(-2, {}), HasSubstr("dataset size is -2"));
  EXPECT_THAT(MessageFor(3, {.num_samples = -1}),
              HasSubstr("num_samples is -1"));
  EXPECT_THAT(MessageFor(0, {.num_samples = 4}),
              HasSubstr("num_samples is 4, but the dataset is empty"));
}

}  // namespace
}  // namespace rankwise
