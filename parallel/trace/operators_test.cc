#include "parallel/trace/operators.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>

namespace rankwise {
namespace {

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

TEST(OperatorRecordingTest, KnowsWhatRanAndWhen) {
  OperatorRecording recording;
  const at::Tensor matrix = at::ones({200, 200});
  recording.Start(/*device=*/false);
  const double start = Now();
  matrix.matmul(matrix);
  const double end = Now();
  const std::vector<TraceSpan> spans = recording.Stop();
  const auto product = std::find_if(
      spans.begin(), spans.end(),
      [](const TraceSpan& span) { return span.name == "aten::matmul"; });
  ASSERT_NE(product, spans.end());
  EXPECT_EQ(product->lane, "operators");
  // The conversion reads two clocks.
  constexpr double kError = 1e-3;
  EXPECT_GT(product->start_seconds, start - kError);
  EXPECT_LT(product->end_seconds, end + kError);
  EXPECT_GT(product->end_seconds, product->start_seconds);
}

TEST(OperatorRecordingTest, ThreadsHaveLanes) {
  OperatorRecording recording;
  recording.Start(/*device=*/false);
  at::ones({3});
  const at::ThreadLocalState state;
  std::thread([&state] {
    const at::ThreadLocalStateGuard guard(state);
    at::ones({3});
  }).join();
  std::set<std::string> lanes;
  for (const TraceSpan& span : recording.Stop()) lanes.insert(span.lane);
  EXPECT_EQ(lanes, (std::set<std::string>{"operators", "operators, thread 2"}));
}

TEST(OperatorRecordingTest, CanBeStartedAgain) {
  OperatorRecording recording;
  for (int i = 0; i < 2; ++i) {
    recording.Start(/*device=*/false);
    at::ones({3}).add(1);
    EXPECT_FALSE(recording.Stop().empty());
  }
}

}  // namespace
}  // namespace rankwise
