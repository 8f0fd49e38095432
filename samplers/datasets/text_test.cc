#include "samplers/datasets/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An empty folder of this test.
std::string Folder(const std::string& name) {
  const std::string path = testing::TempDir() + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  return path;
}

void Write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// A file of `bytes` bytes 0, 1, 2 ...
std::string Counting(const std::string& name, int bytes) {
  const std::string path = testing::TempDir() + name;
  std::string content;
  for (int i = 0; i < bytes; ++i) content.push_back(static_cast<char>(i));
  Write(path, content);
  return path;
}

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(),
          flat.const_data_ptr<int64_t>() + flat.numel()};
}

std::string Complaint(const std::string& path, int64_t sequence_length,
                      Split split = Split::kTrain) {
  return std::string(
      Text::Open(path, split, 10, sequence_length).status().message());
}

TEST(TextTest, CutsTheBytesIntoWindowsThatDoNotOverlap) {
  auto text = Text::Open(Counting("count", 200), Split::kTrain, 1000, 3);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->size(), 180 / 4);
  EXPECT_EQ((*text)->num_classes(), 256);
  EXPECT_THAT((*text)->example_shape(), ElementsAre(3));
  const Batch batch = (*text)->Gather({44, 0});
  EXPECT_THAT(Values(batch.data), ElementsAre(176, 177, 178, 0, 1, 2));
  EXPECT_THAT(Values(batch.target), ElementsAre(177, 178, 179, 1, 2, 3));
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THROW((*text)->Gather({45}), c10::Error);
}

TEST(TextTest, TheLastTenthIsTheTestSplit) {
  auto text = Text::Open(Counting("tenth", 200), Split::kTest, 1000, 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->size(), 4);
  EXPECT_THAT(Values((*text)->Gather({0}).data),
              ElementsAre(180, 181, 182, 183));
}

TEST(TextTest, GivesTheFirstSoManyWindows) {
  auto text = Text::Open(Counting("few", 200), Split::kTrain, 7, 3);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->size(), 7);
}

TEST(TextTest, TakesTheOnlyFileOfAFolder) {
  const std::string folder = Folder("only");
  Write(folder + "/.hidden", "x");
  EXPECT_THAT(Complaint(folder, 3), HasSubstr("only holds 0 files; name the"));
  Write(folder + "/a.txt", std::string(100, 'a'));
  EXPECT_TRUE(Text::Open(folder, Split::kTrain, 1, 3).ok());
  Write(folder + "/b.txt", std::string(100, 'b'));
  EXPECT_THAT(Complaint(folder, 3), HasSubstr("only holds 2 files"));
}

TEST(TextTest, SaysWhatIsMissing) {
  EXPECT_THAT(Complaint("", 3), HasSubstr("by --data_dir"));
  const absl::Status status =
      Text::Open(testing::TempDir() + "nowhere", Split::kTrain, 1, 3).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere"));
}

TEST(TextTest, RefusesAFileShorterThanAWindow) {
  const std::string path = Counting("short", 100);
  EXPECT_TRUE(Text::Open(path, Split::kTest, 1, 9).ok());
  EXPECT_THAT(Complaint(path, 10, Split::kTest),
              AllOf(HasSubstr("has 100 bytes, 10 of them for the test split"),
                    HasSubstr("a window has 11"),
                    HasSubstr("smaller --sequence_length")));
  EXPECT_THAT(Complaint(path, 90), HasSubstr("90 of them for the train split"));
  EXPECT_THAT(Complaint(path, 0), HasSubstr("10 examples of 0 tokens"));
}

}  // namespace
}  // namespace rankwise
