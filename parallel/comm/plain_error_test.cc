#include "parallel/comm/plain_error.h"

#include <stdexcept>
#include <string>

#include "c10/util/Exception.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

TEST(PlainErrorTest, DropsTheTraceOfTorchErrors) {
  try {
    TORCH_CHECK(false, "shapes differ");
  } catch (const std::exception& error) {
    EXPECT_EQ(PlainMessage(error), "shapes differ");
  }
}

TEST(PlainErrorTest, DropsSourceLocations) {
  EXPECT_EQ(PlainMessage(std::runtime_error(
                "[/build/gloo/tcp/pair.cc:537] Connection closed by peer "
                "[127.0.0.1]:4711")),
            "Connection closed by peer [127.0.0.1]:4711");
  EXPECT_EQ(PlainMessage(std::runtime_error("[4, 5] is no shape")),
            "[4, 5] is no shape");
}

TEST(PlainErrorTest, DropsTracesInTheTextAndJoinsLines) {
  EXPECT_EQ(PlainMessage(std::runtime_error(
                "one\ntwo\nException raised from f at a.cpp:3\nframe #0: f")),
            "one two");
}

}  // namespace
}  // namespace rankwise
