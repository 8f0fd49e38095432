#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "trainers/models/model.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Complaint(const ModelConfig& config) {
  const absl::Status status = MakeModelSpec(config).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

ModelConfig Named(const std::string& name) {
  ModelConfig config;
  config.name = name;
  return config;
}

TEST(CatalogTest, KnowsItsNames) {
  EXPECT_THAT(ModelNames(),
              ElementsAre("simple_cnn", "linear", "mp_mlp", "mlp", "gpt",
                          "llama", "vit", "simple_cnn_bn"));
  for (const std::string& name : ModelNames())
    EXPECT_EQ(MakeModelSpec(Named(name))->name, name);
}

TEST(CatalogTest, UnknownNameListsTheKnownOnes) {
  const absl::Status status = MakeModelSpec(Named("resnet")).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(),
            "--model=resnet: no such model; known: simple_cnn, linear, mp_mlp, "
            "mlp, gpt, llama, vit, simple_cnn_bn");
}

TEST(CatalogTest, AFieldWithoutUseIsRefusedAsTyped) {
  ModelConfig config = Named("simple_cnn");
  config.depth = 3;
  EXPECT_EQ(Complaint(config),
            "--depth=3: --model=simple_cnn does not take it; only "
            "--model=mlp, gpt, llama, vit do");
  config = Named("vit");
  config.tied_head = false;
  EXPECT_THAT(Complaint(config), HasSubstr("--tied_head=false: --model=vit"));
  config = Named("mlp");
  config.size = "nano";
  EXPECT_THAT(Complaint(config), HasSubstr("--model_size=nano: --model=mlp"));
  config = Named("vit");
  config.sequence_length = 8;
  EXPECT_THAT(Complaint(config), HasSubstr("--sequence_length=8: --model=vit"));
  config = Named("mlp");
  config.dropout = 0.1;
  EXPECT_THAT(Complaint(config), HasSubstr("--dropout=0.1: --model=mlp"));
}

TEST(CatalogTest, AnMlpMayHaveEqualLayers) {
  ModelConfig config = Named("mlp");
  config.depth = 5;
  config.width = config.input_width = config.classes = 64;
  const ModelSpec spec = *MakeModelSpec(config);
  EXPECT_THAT(spec.example_shape, ElementsAre(64));
  EXPECT_EQ(spec.num_classes, 64);
  ASSERT_EQ(spec.layers.size(), 6u);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.flops, 2 * 64 * 64);
    EXPECT_EQ(layer.parameters, 65 * 64);
    EXPECT_THAT(layer.output_shape, ElementsAre(64));
  }
}

TEST(CatalogTest, ImpossibleSizesAreRefused) {
  ModelConfig config = Named("gpt");
  config.size = "huge";
  EXPECT_EQ(Complaint(config),
            "--model_size=huge: --model=gpt has no such size; it has nano, "
            "micro, mini, small, gpt2");
  config = Named("gpt");
  config.width = 100;
  EXPECT_THAT(Complaint(config),
              HasSubstr("--width=100: must be a multiple of 32"));
  config = Named("mlp");
  config.width = -5;
  EXPECT_THAT(Complaint(config), HasSubstr("--width=-5: must be between 1"));
  config = Named("mlp");
  config.input_width = 1 << 21;
  EXPECT_THAT(Complaint(config), HasSubstr("--input_width=2097152: must be"));
  config = Named("vit");
  config.classes = 20;
  EXPECT_EQ(Complaint(config),
            "--classes=20: --model=vit does not take it; only --model=mlp "
            "does");
  config = Named("vit");
  config.dropout = 1;
  EXPECT_THAT(Complaint(config), HasSubstr("--dropout=1: must be at least 0"));
  config = Named("gpt");
  config.sequence_length = -1;
  EXPECT_THAT(Complaint(config), HasSubstr("--sequence_length=-1: must be"));
}

}  // namespace
}  // namespace rankwise
