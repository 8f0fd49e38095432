#include "analysis/runs/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/runs/trace_for_test.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Cell> CellsOf(const std::vector<RunTrace>& runs) {
  std::vector<std::string> left_out;
  return GroupIntoCells(runs, {10}, &left_out);
}

Cell CellOf(const std::vector<RunTrace>& runs) { return CellsOf(runs).at(0); }
Cell CellOf(const RunTrace& run) { return CellsOf({run}).at(0); }

TEST(GroupIntoCells, RepetitionsMeetAndSingleComesFirst) {
  const std::vector<RunTrace> runs = {
      MakeRun({.world_size = 2, .step_seconds = 0.1}),
      MakeRun({.world_size = 1}), MakeRun({.binary = "single"}),
      MakeRun({.world_size = 2, .step_seconds = 0.2}),
      MakeRun({.world_size = 2, .batch_size = 32})};
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {10}, &left_out);
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[0].Name(), "single on 1 rank");
  EXPECT_EQ(cells[1].Name(), "ddp on 1 rank");
  EXPECT_EQ(cells[2].rank_batch, 32);
  EXPECT_EQ(cells[3].global_batch, 128);
  EXPECT_THAT(cells[3].Values(&Throughput::step_seconds),
              ElementsAre(0.1, 0.2));
  EXPECT_TRUE(left_out.empty());
}

TEST(GroupIntoCells, AnotherConfigurationIsAnotherCell) {
  std::vector<RunTrace> runs = {MakeRun({}), MakeRun({})};
  RunRecord& run = runs[1].ranks[0].run;
  run.flags["lr"] = "0.2";
  SetConfigHashes(&run);
  EXPECT_EQ(CellsOf(runs).size(), 2u);
}

TEST(GroupIntoCells, AnotherMachineOrBackendIsAnotherCell) {
  std::vector<RunTrace> runs(5, MakeRun({.world_size = 2}));
  runs[1].ranks[0].run.host.cpu_model = "Another CPU";
  runs[2].ranks[1].run.host.cpu_model = "Another CPU";  // rank 1 only
  for (RankTrace& trace : runs[3].ranks) trace.run.backend = "nccl";
  for (size_t rank : {0, 1}) {
    runs[4].ranks[rank].run.devices = {absl::StrCat("cuda:", rank)};
  }
  runs.push_back(runs[0]);
  const std::vector<Cell> cells = CellsOf(runs);
  EXPECT_EQ(cells.size(), 4u);  // runs 1 and 2 had CPUs of both kinds
}

TEST(GroupIntoCells, UnmeasurableRunsAreLeftOutWithTheirReason) {
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(
      {MakeRun({}), MakeRun({.steps = 3, .run_id = "cut"})}, {10}, &left_out);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].repetitions.size(), 1u);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("cut.jsonl: 3 steps leave 0")));
}

RunForTest Pipeline() {
  return {.binary = "pipeline",
          .world_size = 4,
          .batch_size = 16,
          .schedule = "1f1b"};
}

// Returns a run that begins after step `step` from checkpoints in `dir`.
RunTrace Resumed(RunForTest config, int64_t step, const std::string& dir) {
  RunTrace run = MakeRun(config);
  for (RankTrace& rank : run.ranks) {
    rank.run.flags["checkpoint_dir"] = dir;
    for (StepRecord& record : rank.steps) record.step += step;
  }
  return run;
}

TEST(GroupIntoCells, PartsOfOneJobAreOneRepetition) {
  std::vector<RunTrace> runs = {
      Resumed({.world_size = 2, .step_seconds = 0.1}, 0, "a"),
      Resumed({.world_size = 2, .step_seconds = 0.2}, 0, "b"),
      Resumed({.world_size = 2, .step_seconds = 0.3, .steps = 40}, 20, "a"),
      Resumed({.world_size = 2, .step_seconds = 0.4}, 60, "a")};
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_THAT(cells[0].run_indices, ElementsAre(2, 1));
  EXPECT_DOUBLE_EQ(cells[0].repetitions[0].step_seconds, 0.3);
  ASSERT_EQ(left_out.size(), 2u);
  EXPECT_THAT(left_out[0],
              HasSubstr("steps 1 to 20 are a part of the job of which steps 21 "
                        "to 60 are measured"));
  EXPECT_THAT(left_out[1], HasSubstr("steps 61 to 80 are a part of the job"));
}

TEST(JobsOf, RestartsAndOtherSizesContinueAJob) {
  std::vector<RunTrace> runs = {
      Resumed({.world_size = 4}, 0, "a"),  Resumed({.world_size = 3}, 10, "a"),
      Resumed({.world_size = 4}, 20, "a"), Resumed({.world_size = 4}, 0, "a"),
      Resumed({.world_size = 4}, 0, "a"),  Resumed({.world_size = 4}, 10, "b"),
      Resumed({.world_size = 4}, 0, ""),   Resumed({.world_size = 4}, 10, "")};
  runs[4].ranks[0].restarts.emplace_back();
  EXPECT_THAT(JobsOf(runs), ElementsAre(0, 0, 0, 3, 3, 5, 6, 6));
  runs[7].source = "another file";
  EXPECT_EQ(JobsOf(runs).back(), 7u);
}

TEST(JobsOf, TheNamesOfFilesDoNotMatter) {
  // again.jsonl, first.jsonl
  std::vector<RunTrace> runs = {Resumed({}, 20, "a"), Resumed({}, 0, "a")};
  EXPECT_THAT(JobsOf(runs), ElementsAre(1, 1));
  const std::vector<Cell> cells = CellsOf(runs);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].repetitions.size(), 1u);
  // Two jobs of two parts each: a part continues the preceding job.
  runs = {Resumed({}, 0, "a"), Resumed({}, 20, "a"), Resumed({}, 0, "a"),
          Resumed({}, 20, "a")};
  EXPECT_THAT(JobsOf(runs), ElementsAre(0, 0, 2, 2));
}

TEST(JobsOf, RunsFromCopiesOfOneCheckpointAreApart) {
  std::vector<RunTrace> runs = {Resumed({}, 20, "a"), Resumed({}, 20, "a"),
                                Resumed({}, 20, "a")};
  EXPECT_THAT(JobsOf(runs), ElementsAre(0, 1, 2));
  const std::vector<Cell> cells = CellsOf(runs);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].repetitions.size(), 3u);
  // A launcher's restart returns to the checkpoint it started from.
  runs[1].ranks[0].restarts.emplace_back();
  EXPECT_THAT(JobsOf(runs), ElementsAre(0, 0, 2));
}

TEST(JobsOf, ARunWithoutStepsIsNoPart) {
  std::vector<RunTrace> runs = {
      Resumed({}, 0, "a"), Resumed({.steps = 0}, 0, "a"), Resumed({}, 20, "a")};
  EXPECT_THAT(JobsOf(runs), ElementsAre(0, 1, 0));
}

TEST(GroupIntoCells, AnotherShapeOfThePipelineIsAnotherCell) {
  // Two cells of 4 ranks and a global batch of 64.
  RunForTest other = Pipeline();
  other.micro_batches = 8;
  other.batch_size = 8;
  RunForTest replicated = Pipeline();
  replicated.replicas = 2;
  replicated.micro_batches = 2;
  const std::vector<Cell> cells =
      CellsOf({MakeRun(Pipeline()), MakeRun(other), MakeRun(replicated),
               MakeRun(Pipeline())});
  ASSERT_EQ(cells.size(), 3u);
  for (const Cell& cell : cells) {
    EXPECT_EQ(cell.Name(), "pipeline 1f1b on 4 ranks");
    EXPECT_EQ(cell.global_batch, 64);
    EXPECT_EQ(cell.pipelines.size(), cell.repetitions.size());
  }
}

TEST(GroupIntoCells, AnotherDivisionOfTheShardsIsAnotherCell) {
  RunTrace whole = MakeRun({.binary = "fsdp", .world_size = 4});
  RunTrace by_two = whole;
  for (RankTrace& rank : by_two.ranks) rank.run.flags["shard_ranks"] = "2";
  EXPECT_EQ(CellsOf({whole, by_two}).size(), 2u);
}

TEST(Cell, NamesTheMeshThatATrainerMayChoose) {
  Cell cell;
  RunRecord& run = cell.run;
  run.binary = "hybrid";
  run.flags["schedule"] = "1f1b";
  run.mesh = {{"pp", 2}, {"dp", 1}, {"cp", 1}, {"tp", 2}};
  EXPECT_EQ(cell.Trainer(), "hybrid pp2xtp2 1f1b");
  run.mesh[0].size = 1;
  EXPECT_EQ(cell.Trainer(), "hybrid tp2");
  run.binary = "tensor_parallel";
  EXPECT_EQ(cell.Trainer(), "tensor_parallel");
  run.mesh[1].size = 2;
  EXPECT_EQ(cell.Trainer(), "tensor_parallel dp2xtp2");
  run.binary = "pipeline";
  EXPECT_EQ(cell.Trainer(), "pipeline 1f1b");
}

TEST(GroupIntoCells, BrokenSchedulesCostOnlyTheTableOfPipelines) {
  RunTrace run = MakeRun(Pipeline());
  run.ranks[1].schedules.pop_back();
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells({run}, {10}, &left_out);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_TRUE(cells[0].pipelines.empty());
  EXPECT_THAT(left_out,
              ElementsAre(HasSubstr(
                  "from the table of pipelines: run.jsonl: step 20")));
}

TEST(BatchText, IsWholeWhereItCanBe) {
  EXPECT_EQ(BatchText(1234567), "1234567");
  EXPECT_EQ(BatchText(64.0 / 3), "21.3");
}

TEST(Cell, OversubscribedWhenThreadsExceedTheCoresOfAHost) {
  RunTrace run = MakeRun({.world_size = 4});  // one host of 8 cores
  for (RankTrace& trace : run.ranks) trace.run.threads_per_rank = 2;
  EXPECT_FALSE(CellOf(run).oversubscribed);
  for (RankTrace& trace : run.ranks) trace.run.threads_per_rank = 3;
  EXPECT_TRUE(CellOf(run).oversubscribed);
  run.ranks[3].run.host.hostname = run.ranks[2].run.host.hostname = "another";
  EXPECT_FALSE(CellOf(run).oversubscribed);
}

TEST(Cell, RunsOnOtherHostsAreOtherCells) {
  const RunTrace one = MakeRun({.world_size = 4});
  RunTrace two = one, named = one;
  for (RankTrace& trace : two.ranks) {
    trace.run.hosts = 2;
    trace.run.host_index = trace.run.rank / 2;
  }
  named.ranks[3].run.host.hostname = named.ranks[2].run.host.hostname = "other";
  EXPECT_THAT(HostsOfRanks(two), testing::ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(HostsOfRanks(named), testing::ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(CountHosts(one), 1);
  const std::vector<Cell> cells = CellsOf({one, two, named});
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[1].repetitions.size(), 2u);
  EXPECT_EQ(cells[1].hosts, 2);
  EXPECT_THAT(cells[0].Name(), testing::EndsWith("on 4 ranks"));
  EXPECT_THAT(cells[1].Name(), testing::EndsWith("on 4 ranks of 2 hosts"));
}

TEST(Cell, RanksThatSeeOneGpuEachShareNone) {
  RunTrace run = MakeRun({.world_size = 2});
  for (RankTrace& trace : run.ranks) trace.run.devices = {"cuda:0"};
  EXPECT_EQ(CellOf(run).shared_device, "cuda:0");
  for (RankTrace& trace : run.ranks) {
    EnvironmentRecord environment;
    environment.variables["CUDA_VISIBLE_DEVICES"] =
        trace.run.rank == 0 ? "4,5" : "6";
    trace.environment = environment;
  }
  EXPECT_EQ(CellOf(run).shared_device, "");
  run.ranks[1].environment->variables["CUDA_VISIBLE_DEVICES"] = "4";
  EXPECT_EQ(CellOf(run).shared_device, "cuda:0");
}

TEST(Cell, DevicesAreThoseOfAllRanks) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[0].run.devices = {"cuda:0"};
  run.ranks[1].run.devices = {"cuda:1"};
  EXPECT_THAT(CellOf(run).devices, ElementsAre("cuda:0", "cuda:1"));
  EXPECT_EQ(CellOf(run).shared_device, "");
}

TEST(Cell, EnvironmentRecordsSayWhichCoresRanksShare) {
  RunTrace run = MakeRun({.world_size = 2});
  const auto with_cpus = [&run](const std::vector<std::vector<int64_t>>& cpus,
                                int64_t threads) {
    for (size_t i = 0; i < cpus.size(); ++i) {
      RankTrace& trace = run.ranks[i];
      trace.environment = EnvironmentRecord{trace.run.rank, "", cpus[i], {}};
      trace.run.threads_per_rank = threads;
      trace.run.host.cores = static_cast<int64_t>(cpus[i].size());
    }
    return CellOf(run).oversubscribed;
  };
  EXPECT_FALSE(with_cpus({{0, 1}, {2, 3}}, 2));  // bound to cores of their own
  EXPECT_TRUE(with_cpus({{0, 1}, {1, 2}}, 2));
  EXPECT_TRUE(with_cpus({{0, 1}, {0, 1}}, 2));
  EXPECT_FALSE(with_cpus({{0}, {0, 1, 2, 3}}, 1));
  run = MakeRun({.world_size = 3});
  // Two ranks on one core, although three cores would suffice.
  EXPECT_TRUE(with_cpus({{0}, {0}, {0, 1, 2, 3}}, 1));
  EXPECT_FALSE(with_cpus({{0}, {1}, {0, 1, 2, 3}}, 1));
}

TEST(Cell, AQuotaBelowTheCpusOfARankCounts) {
  RunTrace run = MakeRun({.world_size = 2});
  for (RankTrace& trace : run.ranks) {
    trace.environment = EnvironmentRecord{trace.run.rank, "", {0, 1, 2, 3}, {}};
    trace.run.threads_per_rank = 2;
    trace.run.host.cores = 4;
  }
  EXPECT_FALSE(CellOf(run).oversubscribed);
  for (RankTrace& trace : run.ranks) trace.run.host.cores = 2;
  EXPECT_TRUE(CellOf(run).oversubscribed);
}

TEST(Cell, ASharedDeviceIsNoticed) {
  RunTrace run = MakeRun({.world_size = 2});
  EXPECT_EQ(CellOf(run).shared_device, "");  // all ranks share the CPU
  run.ranks[0].run.devices = run.ranks[1].run.devices = {"cuda:0"};
  EXPECT_EQ(CellOf(run).shared_device, "cuda:0");
  run.ranks[1].run.host.hostname = "another";
  EXPECT_EQ(CellOf(run).shared_device, "");
}

TEST(Cell, ReplicasOfOneProcessCountAsRanks) {
  RunTrace run = MakeRun({.binary = "data_parallel", .batch_size = 64});
  RunRecord& record = run.ranks[0].run;
  record.devices = {"cpu", "cpu"};
  record.threads_per_rank = 4;  // of a host of 8 cores
  const Cell two = CellOf(run);
  EXPECT_EQ(two.Name(), "data_parallel on 2 ranks");
  EXPECT_EQ(two.global_batch, 64);
  EXPECT_EQ(two.rank_batch, 32);
  EXPECT_FALSE(two.several_devices_per_rank);
  EXPECT_FALSE(two.oversubscribed);
  record.devices.push_back("cpu");
  EXPECT_TRUE(CellOf(run).oversubscribed);
  record.devices = {"cuda:0", "cuda:1"};
  EXPECT_EQ(CellOf(run).shared_device, "");
  record.devices = {"cuda:0", "cuda:0"};
  EXPECT_EQ(CellOf(run).shared_device, "cuda:0");
}

TEST(Cell, SeveralDevicesOfARankAreNoticed) {
  RunTrace run = MakeRun({.world_size = 2});
  EXPECT_FALSE(CellOf(run).several_devices_per_rank);
  run.ranks[1].run.devices = {"cuda:0", "cuda:1"};
  EXPECT_TRUE(CellOf(run).several_devices_per_rank);
}

MemoryRecord Memory(int64_t host, int64_t device) { return {0, host, device}; }

TEST(CellMemory, IsThatOfTheRankThatHeldMost) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[0].memory = Memory(1, 0);
  run.ranks[1].memory = Memory(1, 0);
  run.ranks[1].memory->rank = 1;
  run.ranks[0].memory->measured.activation_bytes = 50;
  EXPECT_FALSE(CellOf(run).memory.has_value());  // rank 1 may have held more
  run.ranks[1].memory->measured.parameter_bytes = 60;
  EXPECT_EQ(CellOf(run).memory->rank, 1);
}

TEST(PeakBytes, IsThatOfTheFullestRank) {
  RunTrace run = MakeRun({.world_size = 2});
  EXPECT_EQ(PeakBytes(run), 0);
  run.ranks[0].memory = Memory(3000, 0);
  EXPECT_EQ(PeakBytes(run), 0);  // rank 1 may have held more
  run.ranks[1].memory = Memory(4000, 0);
  EXPECT_EQ(PeakBytes(run), 4000);
  run.ranks[0].memory = Memory(3000, 500);
  run.ranks[1].memory = Memory(4000, 400);
  EXPECT_EQ(PeakBytes(run), 500);  // of the accelerators
  EXPECT_EQ(PeakBytes(run.ranks[1]), 400);
}

TEST(DeviceKind, IsThatOfTheFirstDevice) {
  RunRecord run;
  EXPECT_EQ(DeviceKind(run), "");
  run.devices = {"cuda:1", "cuda:2"};
  EXPECT_EQ(DeviceKind(run), "cuda");
}

TEST(Cell, PeakMemoryIsTheMedianOfTheRepetitionsThatKnowIt) {
  std::vector<RunTrace> runs(4, MakeRun({}));
  for (size_t i = 0; i < 3; ++i) {
    runs[i].ranks[0].memory = Memory(1000 * (i + 1), 0);
  }
  EXPECT_EQ(CellOf(runs).peak_bytes, 2000);
  EXPECT_EQ(CellOf(runs[3]).peak_bytes, 0);
}

TEST(Cell, KnowsTheCodeOfItsRepetitions) {
  std::vector<RunTrace> runs(3, MakeRun({.world_size = 2}));
  runs[1].ranks[1].run.source_hash = "c0ffee";  // built on another host
  runs[1].ranks[1].run.git_commit = "a new commit of the same source";
  runs[2].ranks[0].run.source_hash = "";
  EXPECT_THAT(CellOf(runs).code_versions,
              ElementsAre("source 0123456789abcdef with torch 2.11.0",
                          "source c0ffee with torch 2.11.0", kUnknownCode));
}

TEST(WhyNotOneCode, UnknownCodeIsNotEqualToItself) {
  EXPECT_EQ(WhyNotOneCode({"source a"}), "");
  EXPECT_EQ(WhyNotOneCode({"source a", "source b"}),
            "ran different code (source a, source b)");
  EXPECT_EQ(WhyNotOneCode({kUnknownCode}),
            "ran code that their records do not name");
}

TEST(CommitText, SaysWhetherTheSourcesWereTheCommits) {
  RunRecord run;
  EXPECT_EQ(CommitText(run), "an unknown commit");
  run.git_commit = std::string(40, 'a');
  run.git_state = "clean";
  EXPECT_EQ(CommitText(run), "commit aaaaaaaaaaaa");
  run.git_state = "modified";
  EXPECT_EQ(CommitText(run), "commit aaaaaaaaaaaa (modified)");
  run.git_state = "unknown";  // as in files of before 1.5
  EXPECT_EQ(CommitText(run), "commit aaaaaaaaaaaa or another");
}

TEST(Cell, AnAblationIsACellOfItsOwn) {
  std::vector<RunTrace> runs(2, MakeRun({.world_size = 2}));
  for (size_t i = 0; i < 2; ++i) {
    RunRecord& run = runs[i].ranks[0].run;
    run.flags["skip_communication"] = i == 0 ? "false" : "true";
    SetConfigHashes(&run);
  }
  const std::vector<Cell> cells = CellsOf(runs);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_NE(cells[0].IsAblation(), cells[1].IsAblation());
  EXPECT_FALSE(CellOf(MakeRun({})).IsAblation());
}

TEST(GroupIntoCells, TheBenchmarkHasNoCells) {
  std::vector<std::string> left_out;
  for (const char* binary : {"comm_bench", "overlap"}) {
    const RunTrace run = MakeRun({.binary = binary, .steps = 0});
    EXPECT_TRUE(GroupIntoCells({run}, {10}, &left_out).empty()) << binary;
  }
  EXPECT_TRUE(left_out.empty());
}

Cell CellOf(const std::string& example, int64_t tokens_per_example = 0) {
  Cell cell;
  cell.run.example = example;
  cell.run.tokens_per_example = tokens_per_example;
  return cell;
}

TEST(RateColumn, CountsWhatAllItsCellsCount) {
  const std::vector<Cell> tokens = {CellOf("sequence", 128),
                                    CellOf("sequence", 16)};
  const RateColumn column(tokens);
  EXPECT_EQ(column.name(), "tokens/s");
  EXPECT_EQ(column.Of(tokens[0], 10), 1280);
  EXPECT_EQ(column.Of(tokens[1], 10), 160);
  EXPECT_EQ(RateColumn({CellOf("image"), CellOf("image")}).name(), "images/s");
}

TEST(RateColumn, CountsExamplesWhereUnitsDifferOrAreUnknown) {
  const std::vector<Cell> mixed = {CellOf("sequence", 128), CellOf("image"),
                                   CellOf("sequence", 128)};
  const RateColumn column(mixed);
  EXPECT_EQ(column.name(), "examples/s");
  for (const Cell& cell : mixed) EXPECT_EQ(column.Of(cell, 10), 10);
  EXPECT_EQ(RateColumn({CellOf("")}).name(), "examples/s");
  EXPECT_EQ(RateColumn({}).name(), "examples/s");
}

// 640 examples/s per rank, each 0.5 TFLOP forward, of a peak of 2000 TFLOPS.
RunTrace RunOn(int64_t world_size) {
  RunTrace run = MakeRun({.world_size = world_size, .step_seconds = 0.1});
  for (RankTrace& rank : run.ranks) {
    rank.run.forward_flops_per_example = 5e11;
    rank.run.flags["peak_tflops"] = "2000";
  }
  return run;
}

TEST(ModelFlopsUtilization, IsThreeForwardPassesOverThePeak) {
  EXPECT_NEAR(ModelFlopsUtilization(CellOf({RunOn(1)})),
              640.0 * 3 * 5e11 / 2e15, 1e-12);
}

TEST(ModelFlopsUtilization, EveryRankHasADevice) {
  EXPECT_NEAR(ModelFlopsUtilization(CellOf({RunOn(4), RunOn(4)})), 0.48, 1e-12);
}

TEST(ModelFlopsUtilization, ARankMayHaveSeveralDevices) {
  RunTrace run = RunOn(1);
  run.ranks[0].run.devices = {"cuda:0", "cuda:1", "cuda:0"};
  EXPECT_NEAR(ModelFlopsUtilization(CellOf({run})), 0.24, 1e-12);
}

TEST(ModelFlopsUtilization, IsOfTheBestMeasuredPeakWhereNoneIsStated) {
  const auto measured = [](double flops_per_second) {
    RunTrace run = RunOn(2);
    for (RankTrace& rank : run.ranks) {
      rank.run.flags.erase("peak_tflops");
      rank.run.peak_flops_per_second = flops_per_second;
    }
    return run;
  };
  const Cell cell = CellOf({measured(1.5e15), measured(2e15)});
  EXPECT_TRUE(cell.peak_is_measured);
  EXPECT_NEAR(ModelFlopsUtilization(cell), 0.48, 1e-12);
  EXPECT_EQ(PeakText(cell), "the measured 2e+03 TFLOPS");
  const Cell stated = CellOf({RunOn(2), measured(1e15)});
  EXPECT_FALSE(stated.peak_is_measured);
  EXPECT_EQ(PeakText(stated), "the stated 2000 TFLOPS");
}

TEST(ModelFlopsUtilization, IsOfTheBestPeakMeasuredAnywhereInTheSamePrecision) {
  const auto measured = [](const std::string& precision, int64_t world_size,
                           double rate) {
    RunTrace run = RunOn(world_size);
    for (RankTrace& rank : run.ranks) {
      rank.run.flags.erase("peak_tflops");
      rank.run.flags["precision"] = precision;
      SetConfigHashes(&rank.run);
      rank.run.peak_flops_per_second = rate;
      rank.run.peak_bytes_per_second = rate / 100;
    }
    return run;
  };
  const std::vector<RunTrace> runs = {
      measured("fp32", 1, 1e14), measured("fp32", 2, 2e14),
      measured("bf16", 1, 8e14), measured("bf16", 2, 7e14)};
  const std::vector<Cell> cells = CellsOf(runs);
  ASSERT_EQ(cells.size(), 4);
  for (const Cell& cell : cells) {
    const double tflops = cell.run.flags.at("precision") == "fp32" ? 200 : 800;
    EXPECT_EQ(cell.peak_tflops, tflops);
    EXPECT_EQ(cell.peak_bytes_per_second, tflops * 1e10);
  }
}

// 10 steps/s of 1 GB each per rank, of 40 GB/s.
TEST(MemoryBandwidthShare, IsOfEveryRanksBandwidth) {
  RunTrace run = RunOn(4);
  EXPECT_TRUE(std::isnan(MemoryBandwidthShare(CellOf({run}))));
  for (RankTrace& rank : run.ranks) {
    rank.run.step_bytes = 1e9;
    rank.run.peak_bytes_per_second = 4e10;
  }
  EXPECT_NEAR(MemoryBandwidthShare(CellOf({run})), 0.25, 1e-12);
}

TEST(ModelFlopsUtilization, IsNotKnownWithoutOnePeakAndTheModelsOperations) {
  RunTrace no_model = RunOn(1);
  no_model.ranks[0].run.forward_flops_per_example = 0;
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({no_model}))));
  RunTrace no_peak = RunOn(1);
  no_peak.ranks[0].run.flags["peak_tflops"] = "0";
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({no_peak}))));
  no_peak.ranks[0].run.flags.erase("peak_tflops");
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({no_peak}))));
  RunTrace other = RunOn(1);
  other.ranks[0].run.flags["peak_tflops"] = "1000";
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({RunOn(1), other}))));
}

}  // namespace

}  // namespace rankwise
