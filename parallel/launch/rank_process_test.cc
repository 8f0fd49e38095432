#include "parallel/launch/rank_process.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineRelayTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines_;
  LineRelay relay_{
      [this](absl::string_view line) { lines_.emplace_back(line); },
      /*lines_kept=*/2};
};

TEST_F(LineRelayTest, PassesOnWholeLinesOnly) {
  relay_.Write("one\ntw");
  EXPECT_THAT(lines_, ElementsAre("one\n"));
  relay_.Write("o\n\nthree");
  EXPECT_THAT(lines_, ElementsAre("one\n", "two\n", "\n"));
}

TEST_F(LineRelayTest, CompletesTheLastLine) {
  relay_.Write("no newline");
  EXPECT_THAT(lines_, IsEmpty());
  relay_.Finish();
  relay_.Finish();
  EXPECT_THAT(lines_, ElementsAre("no newline\n"));
}

TEST_F(LineRelayTest, RemembersTheLastLines) {
  relay_.Write("one\ntwo\nthree");
  relay_.Finish();
  EXPECT_THAT(relay_.last_lines(), ElementsAre("two", "three"));
}

TEST_F(LineRelayTest, PassesOnALineWithoutEndInPieces) {
  const std::string endless((1 << 20) + 1, 'x');
  relay_.Write(endless);
  EXPECT_THAT(lines_, ElementsAre(endless + "\n"));
}

}  // namespace
}  // namespace rankwise
