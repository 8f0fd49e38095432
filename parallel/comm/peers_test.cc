#include "parallel/comm/peers.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using Life = PeerStatus::Life;
using Statuses = absl::StatusOr<std::vector<PeerStatus>>;

// Longer than a beat takes on a busy machine.
constexpr absl::Duration kPatience = absl::Seconds(20);

c10::intrusive_ptr<c10d::Store> NewStore() {
  return c10::make_intrusive<c10d::HashStore>();
}

TEST(PeersTest, APulseIsReadAsItWasWritten) {
  const Pulse pulse = {Pulse::Life::kFailed, 7, 17, "all_reduce #17 of [[1]|x"};
  const absl::StatusOr<Pulse> read = ParsePulse(FormatPulse(pulse));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->life, pulse.life);
  EXPECT_EQ(read->beat, 7u);
  EXPECT_EQ(read->sequence, 17u);
  EXPECT_EQ(read->doing, pulse.doing);
}

TEST(PeersTest, WhatIsNoPulseIsRefused) {
  for (const char* text : {"", "1|2|3", "9|1|1|x", "-1|1|1|x", "0|a|1|x"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParsePulse(text).status())) << text;
  }
}

TEST(PeersTest, ABeatingHeartIsAlive) {
  const auto store = NewStore();
  auto log = std::make_shared<CollectiveLog>();
  log->Begin("barrier", {}, true);
  const Heartbeat heartbeat(store, 1, log);
  const Statuses peers = AskPeers(*store, 0, 2, kPatience);
  ASSERT_TRUE(peers.ok()) << peers.status();
  ASSERT_EQ(peers->size(), 1u);
  EXPECT_EQ(peers->front().rank, 1);
  EXPECT_EQ(peers->front().life, Life::kAlive);
  EXPECT_EQ(peers->front().sequence, 1u);
  EXPECT_EQ(peers->front().doing, "barrier #1");
}

TEST(PeersTest, AStoppedHeartAndNoneAtAllAreSilent) {
  const auto store = NewStore();
  store->set("pulse/1", FormatPulse({Pulse::Life::kAlive, 3, 5, "x #5"}));
  const Statuses peers =
      AskPeers(*store, 0, 3, /*patience=*/absl::Milliseconds(100));
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kSilent);
  EXPECT_EQ(peers->at(0).doing, "x #5");
  EXPECT_EQ(peers->at(1).life, Life::kSilent);
}

TEST(PeersTest, DeparturesAndFailuresAreKnownAtOnce) {
  const auto store = NewStore();
  auto log = std::make_shared<CollectiveLog>();
  {
    const Heartbeat leaving(store, 1, log);
    Heartbeat failing(store, 2, log);
    failing.MarkFailed();
  }
  const Statuses peers = AskPeers(*store, 0, 3, kPatience);
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kLeft);
  EXPECT_EQ(peers->at(1).life, Life::kFailed);
}

TEST(PeersTest, AReportedDeathEndsTheQuestion) {
  const auto store = NewStore();
  store->set("pulse/2", FormatPulse({Pulse::Life::kAlive, 3, 5, "x #5"}));
  ReportDeath(*store, 2, "signal 9 (Killed)");
  const Statuses peers = AskPeers(*store, 0, 3, absl::Hours(1));
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kUnknown);
  EXPECT_EQ(peers->at(1).life, Life::kDead);
  EXPECT_EQ(peers->at(1).death, "signal 9 (Killed)");
  EXPECT_EQ(peers->at(1).doing, "x #5");
}

TEST(PeersTest, ARankThatFailedFirstDidNotDieByItself) {
  const auto store = NewStore();
  store->set("pulse/1", FormatPulse({Pulse::Life::kFailed, 3, 5, "x #5"}));
  ReportDeath(*store, 1, "exit code 1");
  const Statuses peers = AskPeers(*store, 0, 2, kPatience);
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kFailed);
}

TEST(PeersTest, DeparturesAreAwaitedTogether) {
  const auto store = NewStore();
  std::thread other([&store] { AwaitDepartures(*store, 2, kPatience); });
  AwaitDepartures(*store, 2, kPatience);
  other.join();
  EXPECT_EQ(store->add("departures", 0), 2);
}

TEST(PeersTest, AMissingDepartureIsNotAwaitedForever) {
  const auto store = NewStore();
  AwaitDepartures(*store, 2, absl::Milliseconds(50));
  EXPECT_EQ(store->add("departures", 0), 1);
}

}  // namespace
}  // namespace rankwise
