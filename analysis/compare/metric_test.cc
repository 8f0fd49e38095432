#include "analysis/compare/metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankwise {
namespace {

using ::testing::ElementsAre;

TEST(ParseMetrics, NamesOrAll) {
  EXPECT_THAT(*ParseMetrics("peak_bytes,step_seconds"),
              ElementsAre("peak_bytes", "step_seconds"));
  EXPECT_EQ(ParseMetrics("")->size(), 6u);
  EXPECT_EQ(ParseMetrics("step_seconds,speed").status().message(),
            "--metrics=step_seconds,speed: there is no \"speed\"; there are "
            "step_seconds, examples_per_second, exposed_comm_seconds, "
            "data_wait_seconds, peak_bytes, call_seconds");
  EXPECT_FALSE(ParseMetrics("step_seconds,").ok());
}

TEST(Metric, OnlyARateIsBetterHigher) {
  EXPECT_TRUE(MetricNamed("examples_per_second").higher_is_better());
  EXPECT_FALSE(MetricNamed("step_seconds").higher_is_better());
  EXPECT_FALSE(MetricNamed("peak_bytes").higher_is_better());
  EXPECT_TRUE(MetricNamed("data_wait_seconds").part_of_step);
}

TEST(FormatValue, HasAUnitThatFits) {
  EXPECT_EQ(FormatValue(MetricNamed("step_seconds"), 0.01234), "12.34 ms");
  EXPECT_EQ(FormatValue(MetricNamed("call_seconds"), 2.5e-7), "0.25 us");
  EXPECT_EQ(FormatValue(MetricNamed("step_seconds"), 3), "3 s");
  EXPECT_EQ(FormatValue(MetricNamed("peak_bytes"), 1.5e9), "1.5 GB");
  EXPECT_EQ(FormatValue(MetricNamed("examples_per_second"), 640), "640 /s");
}

}  // namespace
}  // namespace rankwise
