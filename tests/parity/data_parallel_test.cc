// Tests that replicas in one process learn the same: equal global batches must
// yield the losses, weights and evaluations of one device, with every --gather
// and --replicate.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// Twelve full steps of two micro-batches, and one step with a single
// micro-batch of 3 examples, fewer than the replicas of some runs.
Flags With(const Flags& first, const Flags& more) {
  return Joined(Joined(first, more),
                {"--train_size=195", "--test_size=37", "--batch_size=8",
                 "--accumulate=2", "--epochs=1", "--seed=3", "--optimizer=sgd",
                 "--lr=0.05", "--threads=1", "--device=cpu"});
}

const Flags& Cnn() {
  static const auto* const kFlags = new Flags{"--model=simple_cnn"};
  return *kFlags;
}

const Flags& TiedGpt() {
  static const auto* const kFlags =
      new Flags{"--model=gpt", "--depth=2", "--width=32",
                "--sequence_length=16", "--clip_grad_norm=0.5"};
  return *kFlags;
}

const std::vector<Flags>& Ways() {
  static const auto* const kWays =
      new std::vector<Flags>{{"--gather=output", "--replicate=step"},
                             {"--gather=loss", "--replicate=step"},
                             {"--gather=output", "--replicate=once"},
                             {"--gather=loss", "--replicate=once"}};
  return *kWays;
}

// Runs each of Ways() with the flag `replicas`; `tolerance` 0 requires bit
// equality.
void ExpectLikeSingle(const Flags& model, const std::string& replicas,
                      double tolerance) {
  const Trained single = Train("single", 1, With(model, {}));
  EXPECT_EQ(single.losses[0].size(), 13u);
  for (const Flags& way : Ways()) {
    SCOPED_TRACE(absl::StrCat(model[0], " ", replicas, " ", way[0], way[1]));
    const Trained run =
        Train("data_parallel", 1, Joined(With(model, way), {replicas}));
    if (tolerance == 0) {
      ExpectBitEqual(single, run);
    } else {
      ExpectClose(single, run, tolerance);
    }
  }
}

TEST(DataParallelTest, OneReplicaIsASingleDeviceToTheLastBit) {
  ExpectLikeSingle(Cnn(), "--replicas=1", 0);
  ExpectLikeSingle(TiedGpt(), "--devices=cpu", 0);
}

TEST(DataParallelTest, TwoReplicasLearnTheSame) {
  ExpectLikeSingle(Cnn(), "--replicas=2", 1e-6);
  ExpectLikeSingle(TiedGpt(), "--devices=cpu,cpu", 1e-5);
}

TEST(DataParallelTest, FourReplicasLearnTheSame) {
  ExpectLikeSingle(Cnn(), "--replicas=4", 1e-6);
}

TEST(DataParallelTest, UnderAutocastOneReplicaIsASingleDevice) {
  const Flags bf16 = {"--model=gpt", "--depth=2", "--width=32",
                      "--precision=bf16"};
  ExpectBitEqual(Train("single", 1, With(bf16, {})),
                 Train("data_parallel", 1, With(bf16, {"--replicas=1"})));
}

// With batch norm the losses are those of smaller batches.
TEST(DataParallelTest, KeepingTheCopiesChangesNothingOfBatchNorm) {
  const Flags model = {"--model=simple_cnn_bn", "--replicas=2"};
  ExpectBitEqual(Train("data_parallel", 1, With(model, {})),
                 Train("data_parallel", 1, With(model, {"--replicate=once"})));
}

// One run of 13 steps, the last 8 of them by another trainer or with another
// number of replicas.
TEST(DataParallelTest, CheckpointsGoOnInOtherTrainers) {
  const Flags adam = {"--optimizer=adam", "--lr=0.001"};
  const Trained whole = Train("single", 1, Joined(With(Cnn(), {}), adam));
  struct Half {
    std::string trainer;
    Flags flags;
  };
  const Half single = {"single", {}}, two = {"data_parallel", {"--replicas=2"}};
  const Half four = {"data_parallel", {"--replicas=4", "--replicate=once"}};
  for (const auto& [first, second] :
       {std::pair(single, two), std::pair(two, single), std::pair(two, four)}) {
    SCOPED_TRACE(first.trainer + " " + second.trainer);
    const std::string dir = FreshDir("resume"), record = dir + "/run.jsonl";
    const auto run = [&](const Half& half, const Flags& more) {
      Flags flags = Joined(Joined(With(Cnn(), half.flags), adam), more);
      return OutputOf(half.trainer, Joined(flags, {"--record=" + record,
                                                   "--checkpoint_dir=" + dir}));
    };
    run(first, {"--max_steps=5", "--checkpoint_every=5"});
    EXPECT_THAT(run(second, {"--resume"}), HasSubstr("resumed after step 5"));
    EXPECT_LT(LargestDistance(whole.weights, WeightsIn(dir)), 1e-3);
    for (const auto& [step, loss] : LossesOf(record, 0))
      EXPECT_NEAR(loss, whole.losses[0].at(step), 1e-4) << "step " << step;
  }
}

// Only the first device's parts have names; forward and backward include them.
TEST(DataParallelTest, RecordsKnowEveryPartOfAStep) {
  const Trained run = Train("data_parallel", 1, With(Cnn(), {"--replicas=2"}));
  EXPECT_THAT(run.out, HasSubstr("replicas on cpu, cpu, made at every step; "
                                 "outputs are gathered on cpu"));
  for (const RunRecord& job : RecordsOf<RunRecord>(run.record)) {
    EXPECT_EQ(job.devices, (Flags{"cpu", "cpu"}));
    EXPECT_EQ(job.threads_per_rank, 1);
  }
  const auto steps = RecordsOf<StepRecord>(run.record);
  EXPECT_EQ(steps.size(), 13u);
  for (const StepRecord& step : steps) {
    double copies = 0;
    for (const char* part :
         {"scatter", "replicate", "gather", "scatter gradient", "reduce"}) {
      ASSERT_EQ(step.first_device_seconds.count(part), 1u) << part;
      copies += step.first_device_seconds.at(part);
    }
    EXPECT_GT(step.first_device_seconds.at("loss"), 0);
    EXPECT_GT(copies, 0);
    EXPECT_NEAR(step.exposed_comm_seconds, copies, 1e-9);
    EXPECT_NEAR(step.exposed_by_axis_seconds.at("dp"), copies, 1e-9);
    EXPECT_GT(step.forward_seconds + step.backward_seconds, copies);
  }
}

struct Wrong {
  std::string name;
  Flags flags;
  std::string message;
};

class BadInput : public ::testing::TestWithParam<Wrong> {};

TEST_P(BadInput, IsNamed) {
  Flags flags = GetParam().flags;
  if (flags.empty() || flags[0].rfind("--device", 0) != 0)
    flags.push_back("--device=cpu");
  const Finished run =
      RunTrainer("data_parallel", flags, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.code, 2) << run.out;
  EXPECT_THAT(run.err, HasSubstr(GetParam().message));
  EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << run.err;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadInput,
    ::testing::Values(
        Wrong{"Replicas",
              {"--replicas=-1"},
              "--replicas=-1: must be between 0 and 1024"},
        Wrong{"ReplicasAndDevices",
              {"--devices=cpu,cpu", "--replicas=2"},
              "--replicas=2: excludes --devices=cpu,cpu: --devices says how "
              "many there are"},
        Wrong{"Gather",
              {"--gather=nothing"},
              "--gather=nothing: must be one of output, loss"},
        Wrong{"Replicate",
              {"--replicate=never"},
              "--replicate=never: must be one of step, once"},
        Wrong{"UnknownDevice",
              {"--devices=cpu,tpu"},
              "--devices=cpu,tpu: \"tpu\" is not a device"},
        Wrong{"DeviceThatIsNotThere",
              {"--devices=cuda:0,cuda:1"},
              "--devices=cuda:0,cuda:1: cuda:0 is not there"},
        Wrong{"OneDevice",
              {"--device=cuda:0"},
              "--device=cuda:0: is one device; --devices names those of all"},
        Wrong{"NoGpus",
              {"--device=cuda", "--replicas=2"},
              "--device=cuda: 2 replicas, and 0 GPUs can be used here"},
        Wrong{"FewerExamplesThanReplicas",
              {"--batch_size=3", "--replicas=4"},
              "--batch_size=3: the 4 replicas share out each batch"},
        Wrong{"FewerExamplesOfAGlobalBatch",
              {"--global_batch_size=6", "--accumulate=2", "--replicas=4"},
              "--global_batch_size=6: the 4 replicas share out each batch"},
        Wrong{"DropoutOfSharedGenerators",
              {"--model=gpt", "--dropout=0.1"},
              "--dropout=0.1: replicas on one device share its random "
              "generator"},
        Wrong{"Ranks",
              {"--nproc=2"},
              "--nproc=2: data_parallel does not take it"},
        Wrong{"NothingToSkip",
              {"--skip_communication"},
              "--skip_communication: data_parallel does not take it"},
        Wrong{"CudaGraph",
              {"--cuda_graph"},
              "--cuda_graph: data_parallel does not"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rankwise
