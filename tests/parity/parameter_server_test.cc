// Tests parameter servers through their command line: training, records, and
// the death of a worker or a server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/test_process.h"
#include "records/record.h"
#include "records/record_reader.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// 8 steps per epoch with two workers.
Flags Small(const Flags& more) {
  return Joined({"--train_size=256", "--test_size=48", "--batch_size=16",
                 "--threads=1", "--log_every=1"},
                more);
}

Trained TrainWith(int servers, int workers, const Flags& flags) {
  return Train("parameter_server", servers + workers,
               Small(Joined(flags, {absl::StrCat("--servers=", servers)})));
}

// Returns the workers' losses, in order.
std::vector<Losses> WorkersOf(const Trained& run, size_t servers) {
  return {run.losses.begin() + static_cast<int64_t>(servers), run.losses.end()};
}

void ExpectNear(const std::vector<Losses>& a, const std::vector<Losses>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t rank = 0; rank < a.size(); ++rank) {
    ASSERT_EQ(a[rank].size(), b[rank].size());
    for (const auto& [step, loss] : a[rank])
      EXPECT_NEAR(b[rank].at(step), loss, 1e-6 * loss) << "step " << step;
  }
}

// Distance of all weights together: a bias that has hardly left zero is
// dominated by rounding.
double DistanceOfAll(const Weights& a, const Weights& b) {
  double difference = 0, size = 0;
  for (const auto& [name, value] : a) {
    const torch::Tensor one = value.to(at::kDouble);
    difference += (one - b.at(name)).square().sum().item<double>();
    size += one.square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

TEST(ParameterServerTest, BspHasTheLossesOfDdp) {
  for (const Flags& model :
       {Flags{"--model=simple_cnn_bn", "--epochs=1", "--clip_grad_norm=1",
              "--optimizer=sgd", "--lr=0.01"},
        Flags{"--model=gpt", "--depth=1", "--width=32", "--sequence_length=16",
              "--optimizer=adamw", "--lr_schedule=cosine", "--epochs=2",
              "--accumulate=2"}}) {
    const Trained ddp = Train("ddp", 2, Small(model));
    for (int servers : {1, 2}) {
      const Trained bsp = TrainWith(servers, 2, model);
      ExpectNear(ddp.losses, WorkersOf(bsp, static_cast<size_t>(servers)));
      EXPECT_LT(DistanceOfAll(ddp.weights, bsp.weights), 1e-6);
      ASSERT_EQ(bsp.evaluations.size(), ddp.evaluations.size());
      for (size_t i = 0; i < ddp.evaluations.size(); ++i) {
        EXPECT_EQ(bsp.evaluations[i].total, ddp.evaluations[i].total);
        EXPECT_NEAR(bsp.evaluations[i].mean_loss, ddp.evaluations[i].mean_loss,
                    1e-4);
      }
      for (const auto& update : RecordsOf<UpdateRecord>(bsp.record)) {
        EXPECT_EQ(update.read_round, update.round - 1);
        EXPECT_EQ(update.read_version, update.version - 1);
      }
    }
  }
}

TEST(ParameterServerTest, SspZeroIsBsp) {
  const Flags model = {"--model=mlp", "--width=32", "--epochs=2"};
  const Trained one = TrainWith(1, 2, model);
  const Trained other = TrainWith(1, 2, Joined(model, {"--consistency=ssp:0"}));
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(LargestDistance(one.weights, other.weights), 0);
}

// Returns the mean of a worker's last losses, relative to its first one.
double LossLeft(const Losses& losses) {
  constexpr int64_t kLast = 6;
  if (losses.size() <= kLast) return 1;
  double sum = 0;
  for (auto it = losses.rbegin(); it != std::next(losses.rbegin(), kLast); ++it)
    sum += it->second;
  return sum / kLast / losses.begin()->second;
}

// Returns the number of rounds by which the parameters of a gradient were
// stale.
int64_t Staleness(const UpdateRecord& update) {
  return update.round - 1 - update.read_round;
}

// All workers train on the same examples, with a straggler.
TEST(ParameterServerTest, EveryConsistencyConvergesAndSspKeepsItsBound) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const Flags base = {"--model=mlp", "--width=32", "--epochs=6", "--lr=0.003",
                      "--slow_worker=3:2"};
  for (const auto& [consistency, bound] :
       std::vector<std::pair<std::string, int64_t>>{
           {"bsp", 0}, {"ssp:2", 2}, {"async", kNone}}) {
    Flags flags = base;
    flags.push_back("--consistency=" + consistency);
    if (consistency == "async") flags.push_back("--scale_lr_by_staleness");
    const Trained run = TrainWith(1, 3, flags);
    ASSERT_EQ(run.losses.size(), 4u);
    for (const Losses& losses : WorkersOf(run, 1))
      EXPECT_LT(LossLeft(losses), 0.5) << consistency;
    const auto updates = RecordsOf<UpdateRecord>(run.record);
    EXPECT_EQ(updates.size(), 3u * 6 * 6) << consistency;  // 6 steps per epoch
    for (const UpdateRecord& update : updates)
      EXPECT_LE(Staleness(update), bound) << consistency;
    EXPECT_EQ(absl::c_any_of(updates, Staleness), bound > 0) << consistency;
  }
}

TEST(ParameterServerTest, AsyncConvergesOnImagesAndText) {
  for (const Flags& model :
       {Flags{"--model=simple_cnn", "--epochs=4"},
        Flags{"--model=gpt", "--depth=1", "--width=32", "--sequence_length=16",
              "--epochs=6", "--lr=0.01"}}) {
    const Trained run = TrainWith(1, 2, Joined(model, {"--consistency=async"}));
    ASSERT_EQ(run.losses.size(), 3u);
    for (const Losses& losses : WorkersOf(run, 1))
      EXPECT_LT(LossLeft(losses), 0.8) << model[0];
  }
}

TEST(ParameterServerTest, LocalStepsConvergeWithEveryOuterOptimizer) {
  const Flags base = {"--model=mlp", "--width=32", "--epochs=6", "--lr=0.003",
                      "--local_steps=4"};
  for (const char* outer : {"average", "nesterov", "elastic"}) {
    const Trained run =
        TrainWith(2, 2, Joined(base, {absl::StrCat("--outer=", outer)}));
    ASSERT_EQ(run.losses.size(), 4u);
    for (const Losses& losses : WorkersOf(run, 2))
      EXPECT_LT(LossLeft(losses), 0.5) << outer;
    // 2 pushes per epoch of 8 steps, to each of the servers.
    EXPECT_EQ(RecordsOf<UpdateRecord>(run.record).size(), 2u * 2 * 2 * 6)
        << outer;
  }
}

Flags Saving(const std::string& dir, int64_t max_steps,
             const Flags& more = {}) {
  return Small(Joined(
      more, {"--nproc=4", "--servers=2", "--model=mlp", "--width=32",
             "--epochs=100000", "--checkpoint_every=3",
             absl::StrCat("--max_steps=", max_steps),
             "--record=" + dir + "/run.jsonl", "--checkpoint_dir=" + dir}));
}

Losses Undisturbed(int64_t steps) {
  const std::string dir = FreshDir("undisturbed");
  OutputOf("parameter_server", Saving(dir, steps));
  return LossesOf(dir + "/run.jsonl", 3);
}

TEST(ParameterServerTest, ResumesBitEqual) {
  const std::string dir = FreshDir("resumed");
  OutputOf("parameter_server", Saving(dir, 7));
  EXPECT_THAT(OutputOf("parameter_server", Saving(dir, 20, {"--resume"})),
              HasSubstr("resumed after step 7 "));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 3), Undisturbed(20));
  // The checkpoint does not depend on the number of servers.
  EXPECT_THAT(
      OutputOf("parameter_server", Joined(Saving(dir, 24, {"--resume"}),
                                          {"--nproc=3", "--servers=1"})),
      HasSubstr("resumed after step 20 "));
}

// Returns the examples per second in the last step's line.
double PrintedRate(const std::string& out) {
  const std::string last = out.substr(out.rfind("  step "));
  const std::string rate = last.substr(last.find("  loss ") + 7);
  return std::stod(rate.substr(rate.find("  ") + 2));
}

// Returns the examples per second of all workers together after the first step,
// from their records. `survivor` is a worker that has completed all steps.
double RecordedRate(const std::string& file, int64_t servers,
                    int64_t survivor) {
  double examples = 0, seconds = 0;
  for (const StepRecord& step : RecordsOf<StepRecord>(file)) {
    if (step.rank < servers || step.step == 1) continue;
    examples += static_cast<double>(step.examples);
    if (step.rank == survivor) seconds += step.step_seconds;
  }
  return examples / seconds;
}

// Returns the printed loss of each step, with four decimals.
Losses PrintedLosses(const std::string& out) {
  Losses losses;
  for (size_t at = out.find("  step "); at != std::string::npos;
       at = out.find("  step ", at + 1)) {
    const size_t loss = out.find("  loss ", at);
    losses[std::stoll(out.substr(at + 7))] = std::stod(out.substr(loss + 7));
  }
  return losses;
}

TEST(ParameterServerTest, PrintsEachStepsOwnLossAndWhatTheWorkersTrainOn) {
  const std::string dir = FreshDir("printed");
  const std::string out =
      OutputOf("parameter_server",
               Small({"--nproc=3", "--model=mlp", "--width=256", "--epochs=1",
                      "--train_size=2560", "--eval=false", "--local_steps=40",
                      "--record=" + dir + "/run.jsonl"}));
  const Losses server = LossesOf(dir + "/run.jsonl", 0);
  const Losses one = LossesOf(dir + "/run.jsonl", 1);
  const Losses other = LossesOf(dir + "/run.jsonl", 2);
  const Losses printed = PrintedLosses(out);
  ASSERT_EQ(server.size(), 80u);
  ASSERT_EQ(printed.size(), 80u);
  for (const auto& [step, loss] : server) {
    EXPECT_NEAR(loss, (one.at(step) + other.at(step)) / 2, 1e-6) << step;
    EXPECT_NEAR(loss, printed.at(step), 1e-4) << step;
  }
  const double ratio =
      PrintedRate(out) / RecordedRate(dir + "/run.jsonl", 1, 1);
  EXPECT_GT(ratio, 0.5);
  EXPECT_LT(ratio, 1.5);
}

// Checks that all steps of the survivors, ranks 1 and 3, are in the server's
// records, each with its loss and its time.
void CheckServerRecords(const std::string& file) {
  const Losses server = LossesOf(file, 0), lost = LossesOf(file, 2);
  const Losses one = LossesOf(file, 1), other = LossesOf(file, 3);
  for (const auto& [step, loss] : server) {
    if (step <= lost.rbegin()->first + 1) continue;
    EXPECT_NEAR(loss, (one.at(step) + other.at(step)) / 2, 1e-6) << step;
  }
  for (const StepRecord& step : RecordsOf<StepRecord>(file)) {
    if (step.rank == 0) {
      EXPECT_GT(step.step_seconds, 1e-5) << step.step;
    }
  }
}

TEST(ParameterServerTest, ADeadWorkerIsLeftOutAndTheOthersContinue) {
  for (const char* consistency : {"bsp", "async"}) {
    const std::string dir = FreshDir(absl::StrCat("dead_", consistency));
    Flags flags = Small({"--nproc=4", "--model=mlp", "--width=256",
                         "--epochs=1", "--train_size=12000", "--eval=false",
                         "--record=" + dir + "/run.jsonl",
                         absl::StrCat("--consistency=", consistency)});
    auto run = StartTrainer("parameter_server", flags);
    const std::vector<pid_t> ranks = RanksAfterSteps(*run, 8);
    ASSERT_EQ(ranks.size(), 4u);
    ASSERT_EQ(kill(ranks[2], SIGKILL), 0);
    EXPECT_EQ(run->Wait(), 0) << run->Stderr();
    EXPECT_TRUE(AllGone(ranks));
    EXPECT_THAT(run->Stderr(),
                AllOf(HasSubstr("warning: rank 2, a worker, no longer "
                                "answers; training continues with 2 workers"),
                      ContainsRegex("rank 2 [(]process [0-9]+[)] ended with "
                                    "signal 9 [(]Killed[)]; the job continues "
                                    "without it")));
    EXPECT_EQ(LossesOf(dir + "/run.jsonl", 1).size(), 250u);
    EXPECT_EQ(LossesOf(dir + "/run.jsonl", 3).size(), 250u);
    EXPECT_LT(LossesOf(dir + "/run.jsonl", 2).size(), 250u);
    CheckServerRecords(dir + "/run.jsonl");
    EXPECT_LT(PrintedRate(run->Stdout()),
              1.25 * RecordedRate(dir + "/run.jsonl", 1, 1));
  }
}

// Returns the number of steps recorded by a rank of a running job.
int64_t StepsRecorded(const std::string& file, int64_t rank) {
  int64_t steps = 0;
  (void)VisitRecords(file, {.tolerate_torn_lines = true},
                     [&](const Record& record) {
                       const auto* step = std::get_if<StepRecord>(&record);
                       steps += step != nullptr && step->rank == rank;
                       return absl::OkStatus();
                     });
  return steps;
}

// Rank 1 is stopped after it has pushed and while it waits for the slow rank 2,
// so that the parameters that the server then sends, larger than the
// connection's buffers, remain partially sent.
TEST(ParameterServerTest, AWorkerKilledInTheMiddleOfAMessageIsNoticedAtOnce) {
  const std::string record = FreshDir("half_sent") + "/run.jsonl";
  auto run =
      StartTrainer("parameter_server",
                   Small({"--nproc=3", "--model=mlp", "--width=1280",
                          "--train_size=100000", "--epochs=1", "--eval=false",
                          "--slow_worker=2:40", "--record=" + record}));
  ASSERT_TRUE(run->AwaitOutput("  step ", 2)) << run->Stderr();
  const Deadline deadline(absl::Seconds(50));
  while (StepsRecorded(record, 1) <= StepsRecorded(record, 0)) {
    ASSERT_FALSE(deadline.passed());
    absl::SleepFor(absl::Milliseconds(5));
  }
  absl::SleepFor(absl::Milliseconds(500));  // until its push has arrived
  const std::vector<pid_t> ranks = ChildrenOf(run->pid());
  ASSERT_EQ(ranks.size(), 3u);
  ASSERT_EQ(kill(ranks[1], SIGSTOP), 0);
  const auto pushed = static_cast<int>(StepsRecorded(record, 1));
  ASSERT_TRUE(run->AwaitOutput("  step ", pushed)) << run->Stderr();
  absl::SleepFor(absl::Milliseconds(200));
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_TRUE(run->AwaitError("warning: rank 1, a worker, no longer answers", 1,
                              absl::Seconds(5)))
      << run->Stderr();
}

TEST(ParameterServerTest, ADeadServerEndsTheJobIsNamedAndResumes) {
  const std::string dir = FreshDir("dead_server");
  auto run = StartTrainer("parameter_server", Saving(dir, 100000));
  const std::vector<pid_t> ranks = RanksAfterSteps(*run, 9);
  ASSERT_EQ(ranks.size(), 4u);
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_EQ(run->Wait(), 128 + SIGKILL) << run->Stderr();
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stderr(),
              AllOf(ContainsRegex("rank 1 [(]process [0-9]+[)] ended with "
                                  "signal 9 [(]Killed[)]; ending the other"),
                    ContainsRegex("parameter_server: rank [23]: error: [^\n]*"
                                  "rank 1 [(]dp 1[)] is dead: signal 9")));
  const int64_t done = LossesOf(dir + "/run.jsonl", 3).rbegin()->first;
  EXPECT_THAT(OutputOf("parameter_server", Saving(dir, done + 5, {"--resume"})),
              HasSubstr("resumed after step "));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 3), Undisturbed(done + 5));
}

// Rank 1 fails while the slow rank 2 is not yet waiting for the server.
TEST(ParameterServerTest, AStoppedServerEndsTheJobWithTheFirstWorkerThatFails) {
  auto run = StartTrainer(
      "parameter_server",
      Small({"--nproc=3", "--consistency=async", "--model=mlp", "--width=1280",
             "--train_size=100000", "--epochs=1", "--eval=false",
             "--slow_worker=2:40", "--collective_timeout=8s"}));
  const std::vector<pid_t> ranks = RanksAfterSteps(*run, 2);
  ASSERT_EQ(ranks.size(), 3u);
  ASSERT_EQ(kill(ranks[0], SIGSTOP), 0);
  EXPECT_EQ(run->Wait(), 1) << run->Stderr();
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stderr(),
              AllOf(ContainsRegex("\\[launcher\\] rank 0 [(]process [0-9]+[)] "
                                  "is the cause: rank [12] "),
                    Not(HasSubstr("the job continues without it"))));
}

TEST(ParameterServerTest, AJobThatIsPreemptedSavesAndGoesOn) {
  const std::string dir = FreshDir("preempted");
  auto run = StartTrainer("parameter_server", Saving(dir, 100000));
  ASSERT_TRUE(run->AwaitOutput("  step ", 9)) << run->Stderr();
  kill(run->pid(), SIGTERM);
  EXPECT_EQ(run->Wait(), 75) << run->Stderr();
  EXPECT_THAT(run->Stdout(),
              HasSubstr("parameter_server: ended by a signal after step "));
  EXPECT_THAT(run->Stderr(), Not(HasSubstr("error")));
}

TEST(ParameterServerTest, RefusesWhatItCannotDo) {
  const std::vector<std::pair<Flags, std::string>> bad = {
      {{"--servers=0"}, "--servers=0: must be between 1 and 1048576"},
      {{"--servers=-1"}, "--servers=-1: must be between"},
      {{"--nproc=2", "--servers=2"},
       "--servers=2: leaves no worker of 2 ranks; give --nproc=3 or more"},
      {{"--nproc=1"},
       "--servers=1: leaves no worker of 1 rank; give --nproc=2"},
      {{"--consistency=sync"}, "--consistency=sync: must be bsp, ssp:K"},
      {{"--consistency=ssp:-1"}, "--consistency=ssp:-1: must be bsp, ssp:K"},
      {{"--consistency=ssp"}, "--consistency=ssp: must be bsp, ssp:K"},
      {{"--local_steps=0"}, "--local_steps=0: must be between 1 and"},
      {{"--outer=adam", "--local_steps=2"},
       "--outer=adam: must be one of average, nesterov, elastic"},
      {{"--local_steps=4", "--checkpoint_every=6",
        "--checkpoint_dir=" + TemporaryPath("unused")},
       "--checkpoint_every=6: must be a multiple of --local_steps=4"},
      {{"--outer=nesterov"}, "--outer=nesterov: needs --local_steps above 1"},
      {{"--outer_lr=-1"}, "--outer_lr=-1: must be between 0 and 100"},
      {{"--outer_momentum=2"}, "--outer_momentum=2: must be"},
      {{"--bucket_mb=0"}, "--bucket_mb=0: must be"},
      {{"--slow_worker=2"}, "--slow_worker=2: must be RANK:FACTOR"},
      {{"--slow_worker=0:2"}, "--slow_worker=0:2: must be RANK:FACTOR"},
      {{"--slow_worker=1:0.5"}, "--slow_worker=1:0.5: must be RANK:FACTOR"},
      {{"--nproc=3", "--slow_worker=3:2"},
       "--slow_worker=3:2: the job has 3 ranks, and the last one is rank 2"},
      {{"--scale_lr_by_staleness"},
       "--scale_lr_by_staleness: with --consistency=bsp no gradient is stale"},
      {{"--consistency=async", "--clip_grad_norm=1"},
       "--clip_grad_norm: servers clip the mean of all workers' gradients"},
      {{"--backend=nccl"},
       "--backend=nccl: parameter_server does not take it: it ends all ranks"},
      {{"--backend=fake", "--eval=false"},
       "--backend=fake: parameter_server does not take it: simulated"},
      {{"--skip_communication"},
       "--skip_communication: parameter_server does not"},
      {{"--dry_run"},
       "--dry_run: parameter_server does not take it: its ranks"},
      {{"--memory"}, "--memory: parameter_server does not take it: its ranks"},
      {{"--trace=/tmp/t.json"},
       "--trace=/tmp/t.json: parameter_server does not"},
      {{"--traffic_steps=1", "--record=" + TemporaryPath("unused")},
       "--traffic_steps=1: parameter_server does not"},
      {{"--check_divergence_every=1"},
       "--check_divergence_every=1: parameter_server"},
      {{"--precision=fp16"}, "--precision=fp16: parameter_server"}};
  for (const auto& [flags, message] : bad) {
    const Finished run = RunTrainer("parameter_server", flags);
    EXPECT_EQ(run.code, 2) << flags[0] << "\n" << run.err;
    EXPECT_THAT(run.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace rankwise
