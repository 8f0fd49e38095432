#include "parallel/comm/fake_backend_timeline.h"

#include <future>
#include <vector>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

using std::chrono::milliseconds;
using Clock = FakeTimeline::Clock;

TEST(FakeTimelineTest, WorksAtOnceAndAnnouncesNotBeforeTheTime) {
  FakeTimeline timeline;
  std::promise<Clock::time_point> announced;
  const auto start = Clock::now();
  Clock::time_point worked{};
  timeline.Schedule([&] { worked = Clock::now(); }, start + milliseconds(20),
                    [&] { announced.set_value(Clock::now()); });
  const auto announced_at = announced.get_future().get();
  EXPECT_GE(announced_at, start + milliseconds(20));
  EXPECT_LE(worked, announced_at);
}

TEST(FakeTimelineTest, AnnouncesInOrderOfTime) {
  std::vector<int> order;
  std::promise<void> last;
  FakeTimeline timeline;
  const auto now = Clock::now();
  timeline.Schedule([] {}, now + milliseconds(30),
                    [&] {
                      order.push_back(3);
                      last.set_value();
                    });
  timeline.Schedule([] {}, now + milliseconds(5), [&] { order.push_back(1); });
  timeline.Schedule([] {}, now + milliseconds(5), [&] { order.push_back(2); });
  last.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(FakeTimelineTest, EndsWithoutWaitingForTheFuture) {
  bool announced = false;
  bool checked = false;
  const auto start = Clock::now();
  {
    FakeTimeline timeline;
    timeline.Schedule([] {}, start + std::chrono::hours(1),
                      [&] { announced = true; });
    timeline.CheckAt(start + std::chrono::hours(1), [&] { checked = true; });
  }
  EXPECT_TRUE(announced);
  EXPECT_FALSE(checked);
}

TEST(FakeTimelineTest, MayBeDestroyedByItsOwnCallback) {
  auto timeline = std::make_shared<FakeTimeline>();
  std::promise<void> done;
  FakeTimeline& alias = *timeline;
  alias.CheckAt(Clock::now() + milliseconds(5),
                [&done, owner = std::move(timeline)]() mutable {
                  owner.reset();
                  done.set_value();
                });
  done.get_future().wait();
}

}  // namespace
}  // namespace rankwise
