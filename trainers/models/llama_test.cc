#include "trainers/models/llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainers/models/model.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

ModelConfig Llama(const std::string& size = "") {
  ModelConfig config;
  config.name = "llama";
  config.size = size;
  return config;
}

std::string Complaint(const ModelConfig& config) {
  const absl::Status status = MakeModelSpec(config).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

// The models' numbers of parameters, as their publishers' files have them.
TEST(LlamaTest, PublishedSizesHaveTheirNumberOfParameters) {
  const std::vector<std::pair<std::string, int64_t>> sizes = {
      {"llama3.2-1b", 1'235'814'400},
      {"llama3.1-8b", 8'030'261'248},
      {"llama3.1-70b", 70'553'706'496},
      {"llama3.1-405b", 405'853'388'800},
      {"qwen3-0.6b", 596'049'920}};
  for (const auto& [name, parameters] : sizes)
    EXPECT_EQ(MakeModelSpec(Llama(name))->parameters(), parameters) << name;
}

TEST(LlamaTest, AnotherWidthKeepsTheWidthOfAHead) {
  ModelConfig config = Llama();
  config.width = 256;
  LlamaSize size = *ChooseLlamaSize(config);
  EXPECT_EQ(size.heads, 8);
  EXPECT_EQ(size.head_width, 32);
  EXPECT_EQ(size.ffn_width, 704);
  config.heads = 4;
  size = *ChooseLlamaSize(config);
  EXPECT_EQ(size.heads, 4);
  EXPECT_EQ(size.head_width, 64);
  config.head_width = 16;
  EXPECT_EQ(ChooseLlamaSize(config)->head_width, 16);
}

TEST(LlamaTest, ImpossibleHeadsAreRefused) {
  ModelConfig config = Llama();
  config.kv_heads = 3;
  EXPECT_EQ(Complaint(config),
            "--kv_heads=3: must divide the 4 attention heads");
  config = Llama();
  config.width = 100;
  EXPECT_THAT(Complaint(config),
              HasSubstr("--width=100: must be a multiple of 32"));
  config = Llama();
  config.heads = 5;
  config.kv_heads = 5;
  config.head_width = 9;
  EXPECT_THAT(Complaint(config), HasSubstr("--head_width=9: must be even"));
  config = Llama();
  config.norm_epsilon = -1;
  EXPECT_THAT(Complaint(config),
              HasSubstr("--norm_epsilon=-1: must be positive"));
  config = Llama("llama4");
  EXPECT_THAT(Complaint(config), HasSubstr("it has nano, mini, llama3.2-1b"));
}

TEST(LlamaTest, RanksThatShareHeadsUnevenlyAreRefused) {
  ModelConfig config = Llama();
  config.heads = 12;
  config.head_width = 48;
  config.kv_heads = 4;
  config.ffn_width = 384;
  config.split.tensor = 6;
  EXPECT_THAT(Complaint(config),
              HasSubstr("tp=6: 4 key and value heads of 48 features neither"));
  config.split.tensor = 12;
  EXPECT_TRUE(MakeModelSpec(config).ok());
  config.ffn_width = 32;
  EXPECT_THAT(Complaint(config),
              HasSubstr("tp=12: 32 features of the MLP (--ffn_width)"));
}

}  // namespace
}  // namespace rankwise
