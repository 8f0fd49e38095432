#include "parallel/launch/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

// Exits with 0 if the second signal does not end the process.
void SendTwice(int first, int second, absl::Duration between) {
  CatchPreemption();
  if (Preempted()) std::exit(1);
  raise(first);
  if (!Preempted()) std::exit(2);
  absl::SleepFor(between);
  raise(second);
  std::exit(0);
}

TEST(PreemptionDeathTest, TheFirstSignalIsCaughtEvenIfItComesTwice) {
  EXPECT_EXIT(SendTwice(SIGUSR1, SIGTERM, absl::ZeroDuration()),
              ::testing::ExitedWithCode(0), "");
}

TEST(PreemptionDeathTest, ASecondOneEndsTheProcess) {
  EXPECT_EXIT(SendTwice(SIGTERM, SIGTERM, absl::Seconds(1.1)),
              ::testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(SendTwice(SIGTERM, SIGUSR1, absl::Seconds(1.1)),
              ::testing::KilledBySignal(SIGUSR1), "");
}

TEST(LauncherSignalsTest, WhatIsIgnoredAtTheStartStaysIgnored) {
  for (const int signal : {SIGHUP, SIGINT}) {
    ::signal(signal, SIG_IGN);
    LauncherSignals signals;
    ASSERT_TRUE(signals.Block(/*usr1=*/false).ok());
    raise(signal);
    signalfd_siginfo info;
    EXPECT_EQ(read(signals.fd(), &info, sizeof(info)), -1);
    ::signal(signal, SIG_DFL);
  }
}

}  // namespace
}  // namespace rankwise
