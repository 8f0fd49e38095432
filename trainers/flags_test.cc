#include "trainers/flags.h"

#include <gtest/gtest.h>

#include "absl/flags/flag.h"
#include "parallel/launch/comm_flags.h"
#include "records/run_origin.h"
#include "trainers/data_parallel_flags.h"
#include "trainers/ddp_setup.h"
#include "trainers/flag_rules.h"
#include "trainers/parameter_server_flags.h"

namespace rankwise {
namespace {

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    // Links the flags of every trainer.
    const TrainConfig config;
    EXPECT_TRUE(CheckDataParallelFlags(config).ok());
    EXPECT_TRUE(CheckDdpFlags(config).ok());
    EXPECT_TRUE(CheckParameterServerFlags(config).ok());
  }
};

// Readers of records identify flags by name.
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
  EXPECT_EQ(losses.at("lr"), "0.001");  // simple_cnn's default
  EXPECT_EQ(losses.at("optimizer"), "adam");
  EXPECT_EQ(losses.count("batch_size"), 1);
  EXPECT_EQ(losses.count("comm_hook"), 1);
  EXPECT_EQ(config->flags.loss_defaults.at("comm_hook"), "none");
  EXPECT_EQ(losses.count("bucket_cap_mb"), 0);
  EXPECT_EQ(losses.count("nproc"), 0);
  EXPECT_EQ(config->flags.scaling.count("bucket_cap_mb"), 1);
  EXPECT_EQ(config->flags.scaling.count("batch_size"), 0);
}

// Holds for each trainer's defaults in a binary that links all flags.
TEST_F(FlagsTest, DefaultsKeepEveryRule) {
  for (const char* trainer :
       {"single", "ddp", "data_parallel", "tensor_parallel", "model_parallel",
        "pipeline", "hybrid", "parameter_server"}) {
    EXPECT_EQ(CheckRules(TrainerRules(), trainer), absl::OkStatus()) << trainer;
  }
}

// A rule with a misspelled flag would never apply.
TEST_F(FlagsTest, RulesNameFlagsThatExist) {
  const auto exists = [](const std::string& condition) {
    const std::string name = condition.substr(0, condition.find_first_of("=>"));
    return absl::FindCommandLineFlag(name) != nullptr;
  };
  for (const FlagRule& rule : TrainerRules()) {
    EXPECT_TRUE(exists(rule.flag)) << rule.flag;
    if (rule.kind == FlagRule::Kind::kNeeds ||
        rule.kind == FlagRule::Kind::kExcludes) {
      EXPECT_TRUE(exists(rule.other)) << rule.other;
    }
    if (*rule.unless != 0) {
      EXPECT_TRUE(exists(rule.unless)) << rule.unless;
    }
  }
}

std::string Refusal(const FlagRule& rule) {
  return std::string(CheckRules({rule}, "fsdp").message());
}

TEST_F(FlagsTest, OneTextForEachKindOfRule) {
  EXPECT_EQ(Refusal(InRange("epochs", 6, 1e6)),
            "--epochs=5: must be between 6 and 1000000");
  EXPECT_EQ(Refusal(InRange("lr", 0.5)), "--lr=0: must be at least 0.5");
  EXPECT_EQ(Refusal(OneOf("on_nan", "|go on")),
            "--on_nan=stop: must be one of go on, or left empty");
  EXPECT_EQ(Refusal(Needs("eval=true", "accumulate>1", "to be quick")),
            "--eval: needs --accumulate above 1, to be quick");
  EXPECT_EQ(Refusal(Needs("epochs>4", "ddp=simple|none")),
            "--epochs=5: needs --ddp=simple or none");
  EXPECT_EQ(Refusal(Excludes("epochs>4", "ddp=reducer", "a reason")),
            "--epochs=5: excludes --ddp=reducer: a reason; leave out one of "
            "the two");
  EXPECT_EQ(Refusal(OnlyOf("epochs>4", "ddp|single", "a reason")),
            "--epochs=5: fsdp does not take it, only ddp, single do: a reason");
  EXPECT_EQ(Refusal(NotOf("epochs>4", "fsdp", "a reason")),
            "--epochs=5: fsdp does not take it: a reason");
}

TEST_F(FlagsTest, RulesThatDoNotApply) {
  EXPECT_EQ(Refusal(Needs("epochs", "ddp=simple")), "") << "the default";
  EXPECT_EQ(Refusal(Needs("epochs>4", "ddp=reducer")), "");
  EXPECT_EQ(Refusal(Excludes("epochs>4", "ddp=reducer", "", "eval=true")), "");
  EXPECT_EQ(Refusal(Needs("epochs>4", "of_no_binary")), "");
  EXPECT_EQ(Refusal(InRange("of_no_binary", 1, 2)), "");
  EXPECT_EQ(Refusal(OnlyOf("epochs>4", "ddp|fsdp", "")), "");
}

}  // namespace
}  // namespace rankwise
