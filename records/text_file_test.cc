#include "records/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"

namespace rankwise {
namespace {

TEST(ReadTextFile, GivesTheContentOrSaysWhyNot) {
  const std::string path = testing::TempDir() + "/text_file";
  std::ofstream(path) << "two\nlines\n";
  EXPECT_EQ(*ReadTextFile(path), "two\nlines\n");
  std::ofstream(path).flush();
  EXPECT_EQ(*ReadTextFile(path), "");
  std::string large(100'000, '\0');
  large.back() = 'x';
  std::ofstream(path) << large;
  EXPECT_EQ(*ReadTextFile(path), large);
  EXPECT_TRUE(absl::IsNotFound(ReadTextFile(path + ".none").status()));
  EXPECT_EQ(ReadTextFile("/dev").status().message(), "is a folder, not a file");
  // It opens, but its first page cannot be read.
  EXPECT_THAT(std::string(ReadTextFile("/proc/self/mem").status().message()),
              testing::HasSubstr("cannot be read"));
}

TEST(ReadTextFile, TakesWhatEditorsOnOtherSystemsWrite) {
  const std::string path = testing::TempDir() + "/other_system";
  std::ofstream(path) << "\xef\xbb\xbftwo\r\nlines\r\n";
  EXPECT_EQ(*ReadTextFile(path), "two\nlines\n");
  std::ofstream(path) << "a\rb";
  EXPECT_EQ(*ReadTextFile(path), "a\rb");
  std::ofstream(path) << "\xff\xfe"
                         "a";
  EXPECT_THAT(std::string(ReadTextFile(path).status().message()),
              testing::HasSubstr("save it again as UTF-8"));
}

}  // namespace
}  // namespace rankwise
