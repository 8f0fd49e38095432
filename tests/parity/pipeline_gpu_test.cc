// Tests models divided and replicated over GPUs, in one process and over NCCL,
// against one process on the CPU: equal losses up to rounding, and times
// measured by the devices.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/device/require_gpus.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

constexpr double kTolerance = 1e-3;

// tests/virtual_gpu:trainers_test runs the same without comparison.
std::string WhyNotComparedOn(int gpus) {
  if (auto why = WhyTooFewGpus(gpus); !why.empty()) return why;
  return GpusCompute() ? "" : "virtual GPUs compute no losses and weights";
}

// Six full steps, and one of three micro-batches.
Flags With(const Flags& first, const Flags& more) {
  return Joined(Joined(first, more),
                {"--train_size=106", "--test_size=10", "--batch_size=4",
                 "--epochs=1", "--seed=3", "--optimizer=sgd", "--lr=0.05"});
}

const Flags& Mlp() {
  static const auto* const kFlags = new Flags{"--model=mlp", "--depth=4"};
  return *kFlags;
}

const Flags& TiedGpt() {
  static const auto* const kFlags = new Flags{
      "--model=gpt", "--depth=4", "--width=64", "--sequence_length=32"};
  return *kFlags;
}

Trained OnTheCpu(const Flags& model) {
  return Train("single", 1, With(model, {"--device=cpu", "--accumulate=4"}));
}

// Requires two ranks.
void ExpectDeviceTimes(const Trained& run) {
  std::map<std::pair<std::string, int64_t>, TimelineRecord> timelines;
  for (const auto& timeline : RecordsOf<TimelineRecord>(run.record))
    timelines[{timeline.origin, timeline.rank}] = timeline;
  for (const auto& schedule : RecordsOf<ScheduleRecord>(run.record)) {
    EXPECT_GT(schedule.busy_seconds, 0);
    EXPECT_LE(schedule.busy_seconds, schedule.span_seconds + 1e-5);
    EXPECT_LE(schedule.span_seconds, schedule.schedule_seconds + 1e-5);
  }
  ASSERT_EQ(timelines.size(), 4u);
  for (const auto& [of, timeline] : timelines) {
    double last = -1e-3;  // accuracy of the ranks' clocks
    for (const RecordedSpan& span : timeline.spans) {
      EXPECT_GE(span.start_seconds, last);
      EXPECT_GE(span.end_seconds, span.start_seconds);
      last = span.start_seconds;
    }
  }
}

void ExpectLikeTheCpu(const Flags& model, int processes, const Flags& flags) {
  const Trained cpu = OnTheCpu(model);
  for (const std::string& schedule : ScheduleNames()) {
    SCOPED_TRACE(schedule);
    const Trained gpu = Train(
        "pipeline", processes,
        With(model,
             Joined(flags, {"--microbatches=4", "--schedule=" + schedule})));
    ExpectClose(cpu, gpu, kTolerance);
    ExpectDeviceTimes(gpu);
  }
}

TEST(PipelineGpuTest, OneGpuAsTwoRanks) {
  if (auto why = WhyNotComparedOn(1); !why.empty()) GTEST_SKIP() << why;
  ExpectLikeTheCpu(Mlp(), 1, {"--devices=cuda:0,cuda:0"});
}

TEST(PipelineGpuTest, ATiedWeightOfTwoRanksOnOneGpu) {
  if (auto why = WhyNotComparedOn(1); !why.empty()) GTEST_SKIP() << why;
  ExpectClose(OnTheCpu(TiedGpt()),
              Train("pipeline", 1,
                    With(TiedGpt(), {"--microbatches=4", "--schedule=1f1b",
                                     "--devices=cuda:0,cuda:0"})),
              kTolerance);
}

TEST(PipelineGpuTest, OneRankWithTwoStages) {
  if (auto why = WhyNotComparedOn(1); !why.empty()) GTEST_SKIP() << why;
  ExpectClose(OnTheCpu(Mlp()),
              Train("pipeline", 1,
                    With(Mlp(), {"--device=cuda", "--microbatches=4",
                                 "--schedule=interleaved_1f1b"})),
              kTolerance);
}

TEST(ModelParallelGpuTest, OneGpuAsTwoStages) {
  if (auto why = WhyNotComparedOn(1); !why.empty()) GTEST_SKIP() << why;
  ExpectClose(OnTheCpu(Mlp()),
              Train("model_parallel", 1,
                    With(Mlp(), {"--devices=cuda:0,cuda:0", "--accumulate=4"})),
              kTolerance);
}

TEST(PipelineGpuTest, TwoGpusInOneProcess) {
  if (auto why = WhyNotComparedOn(2); !why.empty()) GTEST_SKIP() << why;
  ExpectLikeTheCpu(Mlp(), 1, {"--devices=cuda:0,cuda:1"});
  ExpectLikeTheCpu(TiedGpt(), 1, {"--devices=cuda:0,cuda:1"});
}

TEST(PipelineGpuTest, TwoProcessesOverNccl) {
  if (auto why = WhyNotComparedOn(2); !why.empty()) GTEST_SKIP() << why;
  ExpectLikeTheCpu(Mlp(), 2, {"--device=cuda"});
  ExpectLikeTheCpu(TiedGpt(), 2, {"--device=cuda"});
}

TEST(ModelParallelGpuTest, TwoGpus) {
  if (auto why = WhyNotComparedOn(2); !why.empty()) GTEST_SKIP() << why;
  ExpectClose(
      OnTheCpu(TiedGpt()),
      Train("model_parallel", 1,
            With(TiedGpt(), {"--devices=cuda:0,cuda:1", "--accumulate=4"})),
      kTolerance);
}

void ExpectReplicasLikeTheCpu(const Flags& model, const std::string& devices) {
  const Trained cpu = OnTheCpu(model);
  const std::vector<Flags> ways = {{"--gather=output"},
                                   {"--gather=loss"},
                                   {"--replicate=once"},
                                   {"--gather=loss", "--replicate=once"}};
  for (Flags flags : ways) {
    SCOPED_TRACE(flags.front() + " " + flags.back());
    flags.insert(flags.end(), {"--accumulate=4", "--devices=" + devices});
    ExpectClose(cpu, Train("data_parallel", 1, With(model, flags)), kTolerance);
  }
}

TEST(DataParallelGpuTest, OneGpuAsTwoReplicas) {
  if (auto why = WhyNotComparedOn(1); !why.empty()) GTEST_SKIP() << why;
  ExpectReplicasLikeTheCpu(Mlp(), "cuda:0,cuda:0");
}

TEST(DataParallelGpuTest, TwoGpus) {
  if (auto why = WhyNotComparedOn(2); !why.empty()) GTEST_SKIP() << why;
  ExpectReplicasLikeTheCpu(Mlp(), "cuda:0,cuda:1");
  ExpectReplicasLikeTheCpu(TiedGpt(), "cuda:0,cuda:1");
}

// Ranks whose losses are of parts of the batch.
void ExpectMeansLike(const Trained& cpu, const Trained& gpu) {
  EXPECT_LT(LargestDistance(cpu.weights, gpu.weights), kTolerance);
  const auto ranks = static_cast<int64_t>(gpu.losses.size());
  for (const auto& [step, loss] : MeanLosses(gpu.record, ranks))
    EXPECT_NEAR(loss, cpu.losses[0].at(step), kTolerance) << "step " << step;
}

// Ranks along tp and cp communicate within the layers.
TEST(HybridGpuTest, DividedLayersOverNcclAreThoseOfOneProcess) {
  if (auto why = WhyNotComparedOn(2); !why.empty()) GTEST_SKIP() << why;
  const Trained cpu = OnTheCpu(TiedGpt());
  const std::vector<Flags> layouts = {{"--tp=2"},
                                      {"--tp=2", "--sequence_parallel"},
                                      {"--tp=2", "--tp_overlap=2"},
                                      {"--cp=2"},
                                      {"--cp=2", "--context=ulysses"}};
  for (Flags flags : layouts) {
    SCOPED_TRACE(flags.back());
    flags.push_back("--microbatches=4");
    ExpectMeansLike(cpu, Train("hybrid", 2, With(TiedGpt(), flags)));
  }
}

// Compares fsdp's and hybrid's sharding: every stage, with GPU-specific
// options.
void ExpectShardedLikeTheCpu(int ranks) {
  const Trained cpu = OnTheCpu(TiedGpt());
  const std::vector<Flags> layouts = {{"--zero=1"},
                                      {"--zero=2"},
                                      {"--zero=3"},
                                      {"--zero=3", "--prefetch=2"},
                                      {"--zero=3", "--recompute"},
                                      {"--zero=3", "--offload_optimizer"}};
  for (Flags flags : layouts) {
    SCOPED_TRACE(flags.front() + " " + flags.back());
    flags.push_back("--device=cuda");
    flags.push_back(absl::StrCat("--accumulate=", 4 / ranks));
    ExpectMeansLike(cpu, Train("fsdp", ranks, With(TiedGpt(), flags)));
  }
}

TEST(FsdpGpuTest, OneRankThatShardsIsOneProcess) {
  if (auto why = WhyNotComparedOn(1); !why.empty()) GTEST_SKIP() << why;
  ExpectShardedLikeTheCpu(1);
}

TEST(FsdpGpuTest, TwoRanksOverNcclAreOneProcess) {
  if (auto why = WhyNotComparedOn(2); !why.empty()) GTEST_SKIP() << why;
  ExpectShardedLikeTheCpu(2);
}

}  // namespace
}  // namespace rankwise
