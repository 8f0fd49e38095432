#include "trainers/flags.h"

#include <gtest/gtest.h>

#include "parallel/launch/comm_flags.h"
#include "records/run_origin.h"
#include "trainers/data_parallel_flags.h"
#include "trainers/ddp_flags.h"
#include "trainers/parameter_server_flags.h"
#include "trainers/split_flags.h"
#include "trainers/stage_flags.h"
#include "trainers/zero_flags.h"

namespace rankwise {
namespace {

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    // Links the flags of every trainer.
    EXPECT_TRUE(CheckDataParallelFlags().ok());
    EXPECT_TRUE(CheckDdpFlags().ok());
    CheckFsdpFlags().IgnoreError();  // wants the --zero that its main() sets
    EXPECT_TRUE(CheckHybridFlags().ok());
    EXPECT_TRUE(CheckParameterServerFlags().ok());
    EXPECT_TRUE(CheckPipelineFlags().ok());
  }
};

// Readers of records know the flags by name.
TEST_F(FlagsTest, WhatFlagsCountForIsWhatReadersOfRecordsTakeThemFor) {
  const auto flags = FlagsOf("trainers/");
  for (const char* name :
       {"nproc", "lr", "split", "shard_ranks", "mesh_order"}) {
    ASSERT_EQ(flags.count(name), 1) << name;
  }
  for (const auto& [name, value] : flags) {
    const FlagEffect effect = EffectOf(name);
    EXPECT_EQ(FollowsWorldSizeOrOutput(name),
              effect != FlagEffect::kLosses && effect != FlagEffect::kSpeed)
        << "--" << name;
  }
}

TEST_F(FlagsTest, ResumedRunsRepeatWhatChangesTheLosses) {
  const auto config = TrainConfigFromFlags();
  ASSERT_TRUE(config.ok()) << config.status();
  const auto& losses = config->flags.losses;
  EXPECT_EQ(losses.at("lr"), "0.001");  // simple_cnn's own
  EXPECT_EQ(losses.at("optimizer"), "adam");
  EXPECT_EQ(losses.count("batch_size"), 1);
  EXPECT_EQ(losses.count("comm_hook"), 1);
  EXPECT_EQ(config->flags.loss_defaults.at("comm_hook"), "none");
  EXPECT_EQ(losses.count("bucket_cap_mb"), 0);
  EXPECT_EQ(losses.count("nproc"), 0);
  EXPECT_EQ(config->flags.scaling.count("bucket_cap_mb"), 1);
  EXPECT_EQ(config->flags.scaling.count("batch_size"), 0);
}

}  // namespace
}  // namespace rankwise
