#include "records/run_origin.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(Host, ThisMachineHasCoresAndMemory) {
  const HostInfo host = CollectHostInfo();
  EXPECT_GT(host.cores, 0);
  EXPECT_GT(host.memory_bytes, 1 << 20);
  EXPECT_FALSE(host.hostname.empty());
}

TEST(Host, CpuModelIsTheFirstModelName) {
  EXPECT_EQ(CpuModel("processor\t: 0\nmodel\t\t: 85\n"
                     "model name\t: A Processor @ 2.0 GHz\n\n"
                     "model name\t: another\n"),
            "A Processor @ 2.0 GHz");
}

TEST(Host, CpuModelIsEmptyWhereTheKernelNamesNone) {
  EXPECT_EQ(CpuModel("processor : 0\nBogoMIPS : 50.0\n"), "");
  EXPECT_EQ(CpuModel(""), "");
}

TEST(Host, CompilerHasNameAndVersion) {
  EXPECT_NE(CompilerVersion().find("++ "), std::string::npos);
}

TEST(ThisBuildStamp, IsUnknownInABinaryThatIsNotStamped) {
  const BuildStamp stamp = ThisBuildStamp();
  EXPECT_EQ(stamp.source_hash, "");
  EXPECT_EQ(stamp.git_commit, "");
  EXPECT_EQ(stamp.git_state, "unknown");
}

TEST(RunId, StartsWithTheTimeInUtc) {
  const std::string id = NewRunId(absl::FromUnixSeconds(0));
  EXPECT_EQ(id.substr(0, 16), "19700101-000000-");
  EXPECT_EQ(id.size(), 24u);
}

TEST(RunId, TwoRunsOfOneSecondDiffer) {
  const absl::Time now = absl::FromUnixSeconds(0);
  EXPECT_NE(NewRunId(now), NewRunId(now));
}

RunRecord RunWith(std::map<std::string, std::string> flags) {
  RunRecord run;
  run.flags = std::move(flags);
  SetConfigHashes(&run);
  return run;
}

TEST(ConfigHash, IsFnv1aOverSortedLines) {
  EXPECT_EQ(HashFlags({}), "cbf29ce484222325");
  // Computed by hand-written FNV-1a in Python over b"a=1\nb=2\n".
  EXPECT_EQ(HashFlags({{"b", "2"}, {"a", "1"}}), "e1906f913755e085");
}

TEST(ConfigHash, SeparatorsKeepNamesAndValuesApart) {
  EXPECT_NE(HashFlags({{"a", "b"}}), HashFlags({{"ab", ""}}));
  EXPECT_NE(HashFlags({{"a", ""}, {"b", ""}}), HashFlags({{"ab", ""}}));
}

TEST(ConfigHash, RunsThatDifferOnlyInWorldSizeShareTheScalingHash) {
  const RunRecord one = RunWith(
      {{"nproc", "1"}, {"batch_size", "64"}, {"record", "a"}, {"lr", "0.1"}});
  const RunRecord two = RunWith(
      {{"nproc", "2"}, {"batch_size", "32"}, {"record", "b"}, {"lr", "0.1"}});
  EXPECT_NE(one.config_hash, two.config_hash);
  EXPECT_EQ(one.scaling_hash, two.scaling_hash);
}

TEST(ConfigHash, TheMeshsShapeFollowsTheWorldSize) {
  const RunRecord two = RunWith({{"pp", "2"},
                                 {"dp", "1"},
                                 {"cp", "1"},
                                 {"tp", "1"},
                                 {"split", "2"},
                                 {"microbatches", "4"},
                                 {"schedule", "1f1b"}});
  RunRecord four = RunWith({{"pp", "4"},
                            {"dp", "2"},
                            {"cp", "4"},
                            {"tp", "8"},
                            {"split", "1,2,3"},
                            {"microbatches", "8"},
                            {"schedule", "1f1b"}});
  EXPECT_NE(two.config_hash, four.config_hash);
  EXPECT_EQ(two.scaling_hash, four.scaling_hash);
  four.flags["schedule"] = "gpipe";
  SetConfigHashes(&four);
  EXPECT_NE(two.scaling_hash, four.scaling_hash);
}

TEST(ConfigHash, WhatIsOnlyWrittenDownDoesNotCount) {
  const RunRecord one = RunWith({{"csv", ""},
                                 {"trace", ""},
                                 {"trace_ops", "false"},
                                 {"trace_steps", "5"},
                                 {"traffic_steps", "0"}});
  const RunRecord two = RunWith({{"csv", "a.csv"},
                                 {"peak_tflops", "989"},
                                 {"trace", "a.json"},
                                 {"trace_ops", "true"},
                                 {"trace_steps", "2"},
                                 {"traffic_steps", "3"}});
  EXPECT_NE(one.config_hash, two.config_hash);
  EXPECT_EQ(one.scaling_hash, two.scaling_hash);
}

TEST(ConfigHash, ARunWithoutCommunicationIsAnotherOne) {
  const RunRecord one = RunWith({{"skip_communication", "false"}});
  const RunRecord two = RunWith({{"skip_communication", "true"}});
  EXPECT_NE(one.scaling_hash, two.scaling_hash);
}

TEST(ConfigHash, EveryOtherFlagCounts) {
  const RunRecord one = RunWith({{"nproc", "1"}, {"lr", "0.1"}});
  const RunRecord two = RunWith({{"nproc", "1"}, {"lr", "0.2"}});
  EXPECT_NE(one.config_hash, two.config_hash);
  EXPECT_NE(one.scaling_hash, two.scaling_hash);
}

}  // namespace

}  // namespace rankwise
