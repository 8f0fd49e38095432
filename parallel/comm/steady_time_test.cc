// Waits while the machine's clock is being set: each reading of it is an hour
// later than the one before.
#include "parallel/clock/steady_time.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/comm/diagnosis/watchdog.h"
#include "parallel/comm/rendezvous.h"
#include "parallel/comm/test_process.h"
#include "parallel/launch/network.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace {
std::atomic<int64_t> hours{0};
}  // namespace

// Replaces libc's in this program and the libraries that it uses.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += 3600 * ++hours;
  return result;
}

namespace rankwise {
namespace {

// Far above the awaited times, far below the jumps of the clock.
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr absl::Duration kAWhile = absl::Milliseconds(300);

TEST(SteadyTimeTest, TheClockOfThisTestJumps) {
  const absl::Time before = absl::Now();
  EXPECT_GT(absl::Now() - before, absl::Minutes(59));
}

TEST(SteadyTimeTest, ADeadlineIsNotReachedByAJump) {
  const Deadline deadline(kPatience);
  (void)absl::Now();
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.left(), absl::ZeroDuration());
  EXPECT_TRUE(Deadline(absl::ZeroDuration()).passed());
  EXPECT_FALSE(Deadline(absl::InfiniteDuration()).passed());
}

TEST(SteadyTimeTest, PeersAreAskedForAsLongAsWasSaid) {
  c10d::HashStore hash_store;
  c10d::Store& store = hash_store;
  std::thread late([&store] {
    absl::SleepFor(kAWhile);
    Pulse left;
    left.life = Pulse::Life::kLeft;
    store.set("pulse/1", FormatPulse(left));
  });
  const auto peers = QueryPeers(store, 0, 2, kPatience);
  late.join();
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->front().life, PeerStatus::Life::kLeft);
}

TEST(SteadyTimeTest, DeparturesAreAwaited) {
  c10d::HashStore hash_store;
  c10d::Store& store = hash_store;
  std::thread late([&store] {
    absl::SleepFor(kAWhile);
    AwaitDepartures(store, 2, kPatience);
  });
  AwaitDepartures(store, 2, kPatience);
  EXPECT_EQ(store.add("departures", 0), 2);
  late.join();
}

TEST(SteadyTimeTest, RanksAreAwaited) {
  RendezvousConfig config;
  config.timeout = kPatience;
  config.file_store = TemporaryPath("store");
  const auto meet = [&config](int rank) {
    RankEnv env;
    env.rank = rank;
    env.world_size = 2;
    return Rendezvous(env, config).status();
  };
  absl::Status second;
  std::thread late([&] {
    absl::SleepFor(kAWhile);
    second = meet(1);
  });
  const absl::Status first = meet(0);
  late.join();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_TRUE(second.ok()) << second;
}

TEST(SteadyTimeTest, AListenerIsAwaited) {
  const absl::StatusOr<Listener> free = Listen(/*loopback_only=*/true, 0);
  ASSERT_TRUE(free.ok()) << free.status();
  close(free->fd);
  absl::StatusOr<Listener> opened;
  std::thread late([&] {
    absl::SleepFor(kAWhile);
    opened = Listen(/*loopback_only=*/true, free->port);
  });
  const absl::Status reached =
      WaitForListener("127.0.0.1", free->port, kPatience);
  late.join();
  ASSERT_TRUE(opened.ok()) << opened.status();
  close(opened->fd);
  EXPECT_TRUE(reached.ok()) << reached;
}

class EndlessWork : public c10d::Work {
 public:
  bool isCompleted() override { return false; }
};

TEST(SteadyTimeTest, ACollectiveHasItsWholeTimeout) {
  const auto log = std::make_shared<CollectiveLog>();
  std::atomic<bool> given_up{false};
  WatchdogConfig config;
  config.poll_interval = absl::Milliseconds(1);
  config.end = [&given_up](int) { given_up = true; };
  Watchdog watchdog(config, log);
  watchdog.Follow(log->Begin("barrier", {}, /*observed=*/false),
                  c10::make_intrusive<EndlessWork>(), {0, -1});
  EXPECT_FALSE(watchdog.Drain(kAWhile));
  EXPECT_FALSE(given_up);
  EXPECT_TRUE(watchdog.StandDown());
}

}  // namespace
}  // namespace rankwise
