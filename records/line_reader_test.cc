#include "records/line_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string WriteFile(const std::string& text) {
  const std::string path = testing::TempDir() + "/lines.txt";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// A line that no newline ends is marked by "...".
std::vector<std::string> LinesOf(const std::string& text, size_t block_bytes) {
  LineReader reader(WriteFile(text), block_bytes);
  std::vector<std::string> lines;
  while (reader.Next()) {
    lines.push_back(std::string(reader.line()) +
                    (reader.has_newline() ? "" : "..."));
    EXPECT_EQ(reader.number(), static_cast<int64_t>(lines.size()));
  }
  EXPECT_TRUE(reader.status().ok()) << reader.status();
  EXPECT_FALSE(reader.Next());
  return lines;
}

TEST(LineReader, FindsTheLinesAtAnySizeOfBlock) {
  const std::string nul("a\0b", 3);
  for (size_t block : {1u, 2u, 3u, 5u, 1u << 20}) {
    EXPECT_THAT(LinesOf("", block), IsEmpty());
    EXPECT_THAT(LinesOf("\n", block), ElementsAre(""));
    EXPECT_THAT(LinesOf("one\n\nlonger line\r\n", block),
                ElementsAre("one", "", "longer line"));
    EXPECT_THAT(LinesOf("a\rb\r\r\n\r\nc\r", block),
                ElementsAre("a\rb\r", "", "c\r..."));
    EXPECT_THAT(LinesOf("one\ntwo", block), ElementsAre("one", "two..."));
    EXPECT_THAT(LinesOf(nul + "\n", block), ElementsAre(nul));
  }
}

TEST(LineReader, LinesLongerThanABlockAreWhole) {
  const std::string longer(100'000, 'x');
  EXPECT_THAT(LinesOf("a\n" + longer + "\nb\n", 64),
              ElementsAre("a", longer, "b"));
}

TEST(LineReader, SaysWhatCannotBeRead) {
  LineReader missing(testing::TempDir() + "/none.txt");
  EXPECT_FALSE(missing.Next());
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  LineReader folder(testing::TempDir());
  EXPECT_FALSE(folder.Next());
  EXPECT_THAT(std::string(folder.status().message()),
              HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace rankwise
