#include "tests/virtual_gpu/ordering.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::virtual_gpu {
namespace {

using ::testing::HasSubstr;

// Two streams that access one buffer.
class AccessTableTest : public ::testing::Test {
 protected:
  std::string Use(int stream, bool writes, const char* name, size_t offset = 0,
                  size_t bytes = 8) {
    clocks_[stream].Set(stream, clocks_[stream][stream] + 1);
    return table_.Add({buffer_ + offset, bytes, writes}, stream,
                      clocks_[stream], name);
  }
  // Simulates waiting for an event recorded on `other`.
  void Wait(int stream, int other) { clocks_[stream].Join(clocks_[other]); }

  char buffer_[64] = {};
  Clock clocks_[2];
  AccessTable table_;
};

TEST_F(AccessTableTest, OneStreamIsItsOwnOrder) {
  EXPECT_EQ(Use(0, true, "a"), "");
  EXPECT_EQ(Use(0, false, "b"), "");
  EXPECT_EQ(Use(0, true, "c"), "");
}

TEST_F(AccessTableTest, AReadOnAnotherStreamNeedsTheWriteToBeOver) {
  EXPECT_EQ(Use(0, true, "fill"), "");
  EXPECT_THAT(Use(1, false, "sum"), HasSubstr("written by fill on stream 0"));
  Wait(1, 0);
  EXPECT_EQ(Use(1, false, "sum"), "");
}

TEST_F(AccessTableTest, AWriteNeedsAllReadsToBeOver) {
  EXPECT_EQ(Use(0, false, "sum"), "");
  EXPECT_EQ(Use(1, false, "sum"), "");
  EXPECT_THAT(Use(1, true, "fill"), HasSubstr("read by sum on stream 0"));
}

TEST_F(AccessTableTest, WorkAfterTheEventIsNotCovered) {
  EXPECT_EQ(Use(0, true, "first"), "");
  Wait(1, 0);
  EXPECT_EQ(Use(0, true, "second"), "");
  EXPECT_THAT(Use(1, false, "sum"), HasSubstr("written by second"));
}

TEST_F(AccessTableTest, OnlyOverlappingRangesConflict) {
  EXPECT_EQ(Use(0, true, "fill", 0, 16), "");
  EXPECT_EQ(Use(1, true, "fill", 16, 16), "");
  EXPECT_THAT(Use(1, true, "fill", 15, 1), HasSubstr("stream 0"));
  EXPECT_THAT(Use(0, false, "sum", 0, 64), HasSubstr("stream 1"));
}

TEST_F(AccessTableTest, ForgottenMemoryIsNew) {
  EXPECT_EQ(Use(0, true, "fill", 0, 32), "");
  table_.Forget(buffer_ + 8, 8);
  EXPECT_EQ(Use(1, true, "fill", 8, 8), "");
  EXPECT_THAT(Use(1, true, "fill", 16, 8), HasSubstr("stream 0"));
}

}  // namespace
}  // namespace rankwise::virtual_gpu
