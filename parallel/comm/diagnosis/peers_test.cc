#include "parallel/comm/diagnosis/peers.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using Life = PeerStatus::Life;
using Statuses = absl::StatusOr<std::vector<PeerStatus>>;

// Longer than the interval of heartbeats on a busy machine.
constexpr absl::Duration kPatience = absl::Seconds(20);

c10::intrusive_ptr<c10d::Store> NewStore() {
  return c10::make_intrusive<c10d::HashStore>();
}

Pulse PulseOf(Pulse::Life life, const std::string& doing) {
  Pulse pulse;
  pulse.life = life;
  pulse.beat = 3;
  pulse.doing = doing;
  return pulse;
}

TEST(PeersTest, APulseIsReadAsItWasWritten) {
  Pulse pulse = PulseOf(Pulse::Life::kFailed, "all_reduce #17 of [[1]|x");
  pulse.failure_order = 2;
  pulse.failure = "recv with rank 1|";
  pulse.host = "gpu07";
  pulse.progress = {{17, pulse.doing}, {0, ""}, {4, "barrier #4"}};
  const std::optional<Pulse> read = ParsePulse(FormatPulse(pulse));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->life, pulse.life);
  EXPECT_EQ(read->beat, 3u);
  EXPECT_EQ(read->failure_order, 2);
  EXPECT_EQ(read->failure, pulse.failure);
  EXPECT_EQ(read->host, pulse.host);
  EXPECT_EQ(read->doing, pulse.doing);
  ASSERT_EQ(read->progress.size(), 3u);
  EXPECT_EQ(read->progress[0].sequence, 17u);
  EXPECT_EQ(read->progress[0].doing, pulse.doing);
  EXPECT_EQ(read->progress[1].doing, "");
  EXPECT_EQ(read->progress[2].sequence, 4u);
}

TEST(PeersTest, WhatIsNoPulseIsRefused) {
  Pulse pulse;
  pulse.progress = {{4, "barrier #4"}};
  const std::string good = FormatPulse(pulse);
  ASSERT_TRUE(ParsePulse(good).has_value()) << good;
  using Replacement = std::pair<absl::string_view, absl::string_view>;
  for (const Replacement& bad : {Replacement{"\"life\":0", "\"life\":9"},
                                 {"\"life\":0", "\"life\":-1"},
                                 {"\"beat\":0", "\"beat\":\"a\""},
                                 {"\"sequence\":4", "\"sequence\":\"x\""},
                                 {"\"doing\":", "\"done\":"}}) {
    const std::string text = absl::StrReplaceAll(good, {bad});
    EXPECT_NE(text, good);
    EXPECT_FALSE(ParsePulse(text).has_value()) << text;
  }
  for (const char* text : {"", "1|2|3", "{}", "[]", "3"}) {
    EXPECT_FALSE(ParsePulse(text).has_value()) << text;
  }
}

TEST(PeersTest, ABeatingHeartIsAlive) {
  const auto store = NewStore();
  auto log = std::make_shared<CollectiveLog>();
  log->Begin("barrier", {}, true);
  const Heartbeat heartbeat(store, 1, log);
  const Statuses peers = QueryPeers(*store, 0, 2, kPatience);
  ASSERT_TRUE(peers.ok()) << peers.status();
  ASSERT_EQ(peers->size(), 1u);
  EXPECT_EQ(peers->front().rank, 1);
  EXPECT_EQ(peers->front().life, Life::kAlive);
  const Pulse& pulse = peers->front().pulse;
  EXPECT_EQ(pulse.doing, "barrier #1");
  ASSERT_EQ(pulse.progress.size(), 1u);
  EXPECT_EQ(pulse.progress[0].sequence, 1u);
}

TEST(PeersTest, AStoppedHeartAndNoneAtAllAreSilent) {
  const auto store = NewStore();
  store->set("pulse/1", FormatPulse(PulseOf(Pulse::Life::kAlive, "x #5")));
  const Statuses peers =
      QueryPeers(*store, 0, 3, /*patience=*/absl::Milliseconds(100));
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kSilent);
  EXPECT_EQ(peers->at(0).pulse.doing, "x #5");
  EXPECT_EQ(peers->at(1).life, Life::kSilent);
}

TEST(PeersTest, DeparturesAndFailuresAreKnownAtOnce) {
  const auto store = NewStore();
  auto log = std::make_shared<CollectiveLog>();
  {
    const Heartbeat leaving(store, 1, log);
    Heartbeat failing(store, 2, log);
    EXPECT_EQ(failing.MarkFailed("barrier #4"), 1);
    EXPECT_EQ(failing.MarkFailed("barrier #5"), 1) << "the first counts";
  }
  const Statuses peers = QueryPeers(*store, 0, 3, kPatience);
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kLeft);
  EXPECT_EQ(peers->at(1).life, Life::kFailed);
  EXPECT_EQ(peers->at(1).pulse.failure_order, 1);
  EXPECT_EQ(peers->at(1).pulse.failure, "barrier #4");
  Heartbeat later(store, 3, log);
  EXPECT_EQ(later.MarkFailed("barrier #4"), 2);
}

TEST(PeersTest, EachGroupsProgressIsPublished) {
  const auto store = NewStore();
  auto log = std::make_shared<CollectiveLog>();
  log->Begin("all_reduce", {}, true);
  const int group = log->AddGroup("dp", {1, 3});
  log->Begin("barrier", {}, true, group);
  log->Begin("barrier", {}, true, group);
  const Heartbeat heartbeat(store, 1, log);
  const Statuses peers = QueryPeers(*store, 0, 2, kPatience);
  ASSERT_TRUE(peers.ok()) << peers.status();
  const Pulse& pulse = peers->front().pulse;
  EXPECT_EQ(pulse.doing, "barrier #2 of group dp (ranks 1, 3)");
  ASSERT_EQ(pulse.progress.size(), 2u);
  EXPECT_EQ(pulse.progress[0].doing, "all_reduce #1");
  EXPECT_EQ(pulse.progress[1].sequence, 2u);
}

TEST(PeersTest, AReportedDeathEndsTheQuestion) {
  const auto store = NewStore();
  store->set("pulse/2", FormatPulse(PulseOf(Pulse::Life::kAlive, "x #5")));
  ReportDeath(*store, 2, "signal 9 (Killed)");
  const Statuses peers = QueryPeers(*store, 0, 3, absl::Hours(1));
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kUnknown);
  EXPECT_EQ(peers->at(1).life, Life::kDead);
  EXPECT_EQ(peers->at(1).death, "signal 9 (Killed)");
  EXPECT_EQ(peers->at(1).pulse.doing, "x #5");
}

TEST(PeersTest, AReportedStopEndsTheQuestionUntilTheRankGoesOn) {
  const auto store = NewStore();
  store->set("pulse/1", FormatPulse(PulseOf(Pulse::Life::kAlive, "x #5")));
  ReportStop(*store, 1, /*is_stopped=*/true);
  Statuses peers = QueryPeers(*store, 0, 3, absl::Hours(1));
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kStopped);
  EXPECT_EQ(peers->at(1).life, Life::kUnknown);
  ReportStop(*store, 1, /*is_stopped=*/false);
  peers = QueryPeers(*store, 0, 2, absl::Milliseconds(100));
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->at(0).life, Life::kSilent);
}

TEST(PeersTest, TheFirstToBlameIsRemembered) {
  const auto store = NewStore();
  EXPECT_FALSE(RootBlameOf(*store, 2).has_value());
  ReportBlame(*store, 2, {});
  EXPECT_FALSE(RootBlameOf(*store, 2).has_value());
  ReportBlame(*store, 2, {{1, "rank 1 is dead: signal 9|x"}, {0, "late"}});
  const std::optional<Blame> blame = RootBlameOf(*store, 2);
  ASSERT_TRUE(blame.has_value());
  EXPECT_EQ(blame->rank, 1);
  EXPECT_EQ(blame->what, "rank 1 is dead: signal 9|x");
}

TEST(PeersTest, TheRootOfAChainOfBlamesIsFound) {
  const auto store = NewStore();
  ReportBlame(*store, 3, {{2, "rank 2 failed first"}});
  ReportBlame(*store, 2, {{0, "rank 0 is silent"}});
  const std::optional<Blame> root = RootBlameOf(*store, 3);
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->rank, 0);
  EXPECT_EQ(root->what, "rank 0 is silent");
  ReportBlame(*store, 0, {{3, "rank 3 is silent"}});  // they blame each other
  EXPECT_TRUE(RootBlameOf(*store, 3).has_value());
}

TEST(PeersTest, ARankThatFailedFirstDidNotDieByItself) {
  const auto store = NewStore();
  store->set("pulse/1", FormatPulse(PulseOf(Pulse::Life::kFailed, "x #5")));
  ReportDeath(*store, 1, "exit code 1");
  const Statuses peers = QueryPeers(*store, 0, 2, kPatience);
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
