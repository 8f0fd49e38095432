#include "trainers/observe/step_trace.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {
namespace {

std::unique_ptr<Communicator> SimulatedRanks() {
  RankEnv env;
  env.world_size = 2;
  CommConfig config;
  config.backend = "fake";
  return Communicator::Create(env, config).value();
}

TEST(StepTrafficTest, RecordsTheStepsAfterTheWarmUp) {
  const auto comm = SimulatedRanks();
  StepTraffic traffic(comm.get(), /*recorded=*/2, /*traced=*/3);
  at::Tensor tensor = at::ones({5});
  for (int64_t number = 1; number <= 6; ++number) {
    const int64_t start_ns = SteadyNowNs();
    StepRecord step;
    step.rank = 1;
    step.step = number + 10;  // resumed
    traffic.Begin();
    ASSERT_TRUE(comm->AllReduce(tensor).ok());
    const StepCommunication seen = traffic.End(step, start_ns);
    EXPECT_EQ(seen.events.size(), number >= 3 && number <= 5 ? 1u : 0u);
    const std::optional<TrafficRecord>& record = seen.record;
    ASSERT_EQ(record.has_value(), number == 3 || number == 4) << number;
    if (!record.has_value()) continue;
    EXPECT_EQ(record->rank, 1);
    EXPECT_EQ(record->step, number + 10);
    ASSERT_EQ(record->events.size(), 1u);
    EXPECT_EQ(record->events[0].op, "all_reduce");
    EXPECT_EQ(record->events[0].bytes, 20);
    EXPECT_GE(record->events[0].start_seconds, 0);
  }
}

TEST(StepTrafficTest, NeedsNoCommunicator) {
  StepTraffic traffic(/*comm=*/nullptr, /*recorded=*/0, /*traced=*/2);
  for (int i = 0; i < 4; ++i) {
    traffic.Begin();
    const StepCommunication seen = traffic.End({}, {});
    EXPECT_TRUE(seen.events.empty());
    EXPECT_FALSE(seen.record.has_value());
  }
}

TEST(StepTraceTest, WithoutAStepThatItFollowsItWritesNothing) {
  const std::string file = testing::TempDir() + "/no_steps.json";
  const Worker worker;
  StepTrace trace({.file = file}, worker);
  EXPECT_FALSE(trace.Begin());  // warm-up
  const absl::StatusOr<std::string> said = trace.Write();
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->find("no trace is written: "), 0u) << *said;
  EXPECT_TRUE(trace.written());
  EXPECT_TRUE(trace.file_status().ok());
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace rankwise
