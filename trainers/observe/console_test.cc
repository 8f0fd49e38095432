#include "trainers/observe/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace rankwise {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A console and its arguments.
struct OfRank {
  explicit OfRank(int rank) {
    worker.env.rank = rank;
    worker.env.world_size = 2;
    config.epochs = 3;
    config.output.log_every = 100;
  }
  Console Make() const { return Console(config, worker, length); }

  TrainConfig config;
  Worker worker;
  RunLength length{.steps_per_epoch = 250, .total_steps = 750};
};

TEST(ConsoleTest, RankZeroSpeaksForTheRunAndEveryRankForItself) {
  testing::internal::CaptureStdout();
  const OfRank zero(0), one(1);
  Console first = zero.Make(), second = one.Make();
  first.Say("the run");
  second.Say("not this");
  second.SayRank("cpu");
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(text, "the run\nrank 1 of 2: cpu\n");
}

TEST(ConsoleTest, ShowsTheLossEveryHundredStepsAndAtTheEpochsEnd) {
  const OfRank zero(0);
  const Console console = zero.Make();
  EXPECT_FALSE(console.ShowsLoss(1));
  EXPECT_TRUE(console.ShowsLoss(100));
  EXPECT_TRUE(console.ShowsLoss(200));
  EXPECT_TRUE(console.ShowsLoss(250));
}

TEST(ConsoleTest, PlainLinesWithoutATerminal) {
  testing::internal::CaptureStdout();
  const OfRank zero(0);
  Console console = zero.Make();
  for (int64_t step = 1; step <= 100; ++step)
    console.StepDone(step, step, 1, 32, 1.5);
  console.Loss(100, 1, 1.25);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("first step done after "));
  EXPECT_THAT(text, HasSubstr("epoch 1/3  step 100/250  loss 1.2500  "));
  EXPECT_THAT(text, HasSubstr(" examples/s  ETA "));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

// Redirects stdout to a terminal for its lifetime.
class Terminal {
 public:
  Terminal() : stdout_(dup(STDOUT_FILENO)) {
    int terminal = -1;
    EXPECT_EQ(openpty(&reader_, &terminal, nullptr, nullptr, nullptr), 0);
    std::fflush(stdout);
    dup2(terminal, STDOUT_FILENO);
    close(terminal);
  }
  ~Terminal() {
    std::fflush(stdout);
    dup2(stdout_, STDOUT_FILENO);
    close(stdout_);
    close(reader_);
  }
  // Returns the text written since the last call. The terminal may deliver it
  // in parts; a mark written after it terminates it.
  std::string Read() {
    constexpr char kMark = '\x01';
    std::putchar(kMark);
    std::fflush(stdout);
    std::string text;
    pollfd readable = {.fd = reader_, .events = POLLIN, .revents = 0};
    while (!text.ends_with(kMark)) {
      char part[4096];
      const ssize_t bytes = poll(&readable, 1, /*timeout_ms=*/5000) == 1
                                ? read(reader_, part, sizeof(part))
                                : 0;
      if (bytes <= 0) {
        ADD_FAILURE() << "no end of the text " << text;
        return text;
      }
      text.append(part, static_cast<size_t>(bytes));
    }
    text.pop_back();
    return text;
  }

 private:
  const int stdout_;
  int reader_ = -1;
};

TEST(ConsoleTest, TheBarOfATerminalShowsTheNewestLossOnceThereIsOne) {
  const OfRank zero(0);
  Terminal terminal;
  Console console = zero.Make();
  console.StepDone(1, 1, 1, 32, std::nullopt);
  EXPECT_THAT(terminal.Read(), StartsWith("first step done after "));
  console.StepDone(2, 2, 1, 32, std::nullopt);
  std::string text = terminal.Read();
  EXPECT_THAT(text, StartsWith("\r\033[Kepoch 1/3 [    "));
  EXPECT_THAT(text, HasSubstr("] 2/250  "));
  EXPECT_THAT(text, Not(HasSubstr("loss")));
  absl::SleepFor(absl::Milliseconds(120));  // minimum time between bars
  console.StepDone(125, 125, 1, 32, 0.75);
  text = terminal.Read();
  EXPECT_THAT(text,
              HasSubstr("[============            ] 125/250  loss 0.7500"));
  // A line replaces the bar.
  console.Loss(126, 1, 0.5);
  text = terminal.Read();
  EXPECT_THAT(text, StartsWith("\r\033[Kepoch 1/3  step 126/250  loss 0.5000"));
  EXPECT_THAT(text, EndsWith("\n"));
}

TEST(ConsoleTest, OtherRanksDrawNoBarOnATerminal) {
  const OfRank one(1);
  Terminal terminal;
  Console console = one.Make();
  for (int64_t step = 1; step <= 3; ++step)
    console.StepDone(step, step, 1, 32, 0.5);
  EXPECT_EQ(terminal.Read(), "");
}

TEST(ConsoleTest, ARateCountsTokensOrImages) {
  for (const auto& [unit, rate] :
       std::vector<std::pair<ExampleUnit, std::string>>{
           {{"sequence", 3}, "at 1500 tokens/s on rank 0, "},
           {{"image", 0}, "at 500 images/s on rank 0, "},
           {{"", 0}, "at 500 examples/s on rank 0, "}}) {
    OfRank zero(0);
    zero.config.output.peak.flops_per_second = 6e12;
    zero.length.unit = unit;
    testing::internal::CaptureStdout();
    Console console = zero.Make();
    console.EpochDone({.epoch = 1, .examples = 1000, .seconds = 2});
    console.RunDone();
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr(rate));
  }
}

TEST(ConsoleTest, EpochAndEvaluationLines) {
  testing::internal::CaptureStdout();
  const OfRank zero(0), one(1);
  Console console = one.Make();
  console.EpochDone({.rank = 1,
                     .epoch = 2,
                     .mean_loss = 0.5,
                     .examples = 1000,
                     .seconds = 2});
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "rank 1 of 2: epoch 2 mean training loss 0.5000 over 1000 "
            "examples, 2.0 s\n");
  testing::internal::CaptureStdout();
  Console first = zero.Make();
  first.Evaluated({.epoch = 2, .mean_loss = 0.25, .correct = 90, .total = 120},
                  /*classification=*/true);
  first.Evaluated({.epoch = 2, .mean_loss = 0.25, .total = 120},
                  /*classification=*/false);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "epoch 2 test loss 0.2500, accuracy 75.00 % (90 of 120)\nepoch 2 "
            "test loss 0.2500 over 120 examples\n");
}

// 1000 examples in 2 s, 3e9 FLOPs each: 1.5 TFLOP/s of 6.
TEST(ConsoleTest, MfuOfTheEpochAndOfTheRunWhereThePeakIsKnown) {
  OfRank zero(0);
  zero.length.training_flops_per_example = 3e9;
  zero.config.output.peak.flops_per_second = 6e12;
  testing::internal::CaptureStdout();
  Console console = zero.Make();
  console.EpochDone({.epoch = 1, .examples = 1000, .seconds = 2});
  console.EpochDone({.epoch = 2, .examples = 1000, .seconds = 1});
  console.RunDone();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("2.0 s, MFU 25.00 %\n"));
  EXPECT_THAT(text, HasSubstr("1.0 s, MFU 50.00 %\n"));
  EXPECT_THAT(text, HasSubstr("\nMFU 33.33 %: 3e+09 training FLOPs per example "
                              "and device, at 667 examples/s on rank 0, "
                              "against the measured 6 TFLOP/s\n"));
  zero.config.output.peak_tflops = 6;
  testing::internal::CaptureStdout();
  console.RunDone();
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("against --peak_tflops=6\n"));
  testing::internal::CaptureStdout();
  OfRank(0).Make().RunDone();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(ConsoleTest, TheProcessWasStartedAMomentAgo) {
  EXPECT_GE(SecondsSinceProcessStart(), 0.0);
  EXPECT_LT(SecondsSinceProcessStart(), 3600.0);
}

}  // namespace
}  // namespace rankwise
