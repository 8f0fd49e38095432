// Tests pipelines of models whose stages share more than activations: tied
// weights, dropout, a norm over all gradients, replicas.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

// An epoch's third step has micro-batches of 2, 2 and 1 examples.
Flags With(const Flags& flags) {
  return Joined(
      flags, {"--model=gpt", "--depth=4", "--width=64", "--sequence_length=32",
              "--train_size=21", "--test_size=5", "--batch_size=2",
              "--epochs=2", "--seed=3"});
}

Trained Single(const Flags& flags) {
  return Train("single", 1, With(Joined(flags, {"--accumulate=4"})));
}

Trained Pipeline(int ranks, const Flags& flags) {
  return Train("pipeline", ranks, With(Joined(flags, {"--microbatches=4"})));
}

// The two copies of a tied weight sum their gradients in another order.
TEST(TiedHeadTest, IsEqualToOneProcessButForRounding) {
  const Flags sgd = {"--optimizer=sgd", "--lr=0.1"};
  const Trained base = Single(sgd);
  ASSERT_EQ(base.losses.at(0).size(), 6u);
  for (const char* schedule :
       {"--schedule=1f1b", "--schedule=zero_bubble_h1", "--schedule=zbv"}) {
    SCOPED_TRACE(schedule);
    ExpectClose(base, Pipeline(2, Joined(sgd, {schedule})), 1e-6);
  }
}

TEST(UntiedHeadTest, IsBitEqualToOneProcessWithDropout) {
  const Flags flags = {"--tied_head=false", "--dropout=0.1"};
  const Trained base = Single(flags);
  for (const char* schedule :
       {"--schedule=1f1b", "--schedule=zero_bubble_h1", "--schedule=zbv"}) {
    SCOPED_TRACE(schedule);
    ExpectBitEqual(base, Pipeline(2, Joined(flags, {schedule})));
  }
  SCOPED_TRACE("--recompute");
  ExpectBitEqual(base, Pipeline(4, Joined(flags, {"--recompute"})));
}

// The norm is over the gradients of all stages, each tied weight counted once.
TEST(ClippedGradientsTest, AreScaledAsInOneProcess) {
  const Flags sgd = {"--optimizer=sgd", "--lr=0.1"};
  const Flags clipped = Joined(sgd, {"--clip_grad_norm=0.3"});
  const Trained base = Single(clipped);
  ExpectClose(base, Pipeline(2, clipped), 1e-6);
  EXPECT_NE(base.losses, Single(sgd).losses);
}

TEST(Bf16Test, IsBitEqualToOneProcess) {
  const Flags flags = {"--precision=bf16", "--tied_head=false"};
  const Trained base = Single(flags);
  ExpectBitEqual(base, Pipeline(2, flags));
  EXPECT_NE(base.losses, Single({"--tied_head=false"}).losses);
}

// Each of two pipelines uses every second example of the global batch of 16.
TEST(ReplicasTest, TakeTheSameGlobalBatches) {
  const Flags flags = {"--train_size=320", "--test_size=10", "--epochs=1",
                       "--optimizer=sgd",  "--lr=0.01",      "--seed=5"};
  const Trained base = Train("single", 1, Joined(flags, {"--batch_size=16"}));
  const Trained run =
      Train("pipeline", 4,
            Joined(flags,
                   {"--pp=2", "--dp=2", "--microbatches=2", "--batch_size=4"}));
  ASSERT_EQ(run.losses.size(), 4u);
  ASSERT_EQ(run.losses[0].size(), 20u);
  // Ranks 0 and 2 are the first pipeline's stages.
  EXPECT_EQ(run.losses[0], run.losses[2]);
  EXPECT_EQ(run.losses[1], run.losses[3]);
  for (const auto& [step, loss] : MeanLosses(run.record, 4))
    EXPECT_NEAR(loss, base.losses[0].at(step), 1e-4) << "step " << step;
  EXPECT_LT(LargestDistance(base.weights, run.weights), 1e-5);
  ASSERT_EQ(run.evaluations.size(), 1u);
  EXPECT_EQ(run.evaluations[0].total, 10);
  EXPECT_NEAR(run.evaluations[0].mean_loss, base.evaluations[0].mean_loss,
              1e-4);
}

TEST(ModelParallelTest, IsBitEqualToOneDevice) {
  const Flags flags = {"--model=mp_mlp", "--train_size=42", "--test_size=10",
                       "--batch_size=4", "--accumulate=4",  "--epochs=2"};
  const Trained base = Train("single", 1, flags);
  ASSERT_EQ(base.losses.at(0).size(), 6u);
  ExpectBitEqual(base,
                 Train("model_parallel", 1,
                       Joined(flags, {"--devices=cpu,cpu", "--split=2"})));
  ExpectBitEqual(base,
                 Train("model_parallel", 2, Joined(flags, {"--split=1"})));
}

// The saved running statistics are replica 0's: if each replica kept its own,
// the undisturbed run would evaluate with others.
TEST(ReplicasTest, EvaluateTheModelThatIsSaved) {
  const Flags flags = {"--model=simple_cnn_bn",
                       "--dp=2",
                       "--microbatches=2",
                       "--train_size=32",
                       "--test_size=10",
                       "--batch_size=4",
                       "--epochs=2",
                       "--seed=5"};
  const Trained base = Train("pipeline", 2, flags);
  ASSERT_EQ(base.evaluations.size(), 2u);
  const std::string dir = FreshDir("stopped");
  const Flags more = {"--nproc=2", "--threads=1", "--checkpoint_dir=" + dir,
                      "--record=" + dir + "/run.jsonl"};
  OutputOf("pipeline", Joined(flags, Joined(more, {"--epochs=1"})));
  OutputOf("pipeline", Joined(flags, Joined(more, {"--resume"})));
  const auto evaluations = RecordsOf<EvalRecord>(dir + "/run.jsonl");
  ASSERT_EQ(evaluations.size(), 2u);
  EXPECT_EQ(evaluations[0].mean_loss, base.evaluations[0].mean_loss);
  EXPECT_EQ(evaluations[1].mean_loss, base.evaluations[1].mean_loss);
}

}  // namespace
}  // namespace rankwise
