#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns llm.c's header of 256 int32.
std::string Header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic, header[1] = version, header[2] = count;
  return {reinterpret_cast<const char*>(header.data()), 1024};
}

template <typename Id>
std::string Bytes(const std::vector<int64_t>& ids) {
  const std::vector<Id> narrow(ids.begin(), ids.end());
  return {reinterpret_cast<const char*>(narrow.data()),
          narrow.size() * sizeof(Id)};
}

std::string LlmC(const std::vector<int64_t>& ids) {
  return Header(20240520, 1, static_cast<int32_t>(ids.size())) +
         Bytes<uint16_t>(ids);
}

// Returns first, first + 1, ...
std::vector<int64_t> Counting(int64_t first, int64_t count) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Gives each test an empty folder.
class TokenFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // Opens windows of three tokens and the token after them.
  static DatasetOr Open(const std::string& path, Split split = Split::kTrain,
                        int64_t vocabulary = 1000) {
    return OpenDataset({.name = "tokens",
                        .data_dir = path,
                        .sequence_length = 3,
                        .num_classes = vocabulary},
                       split);
  }

  static std::string Complaint(const std::string& path,
                               int64_t vocabulary = 1000) {
    const absl::Status status = Open(path, Split::kTrain, vocabulary).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  std::string folder_;
};

std::vector<int64_t> Values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(),
          tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

// Returns the first token of every window.
std::vector<int64_t> FirstTokens(const Dataset& dataset) {
  const at::Tensor data =
      dataset.Gather(Counting(0, dataset.size())).data.select(1, 0);
  return Values(data.contiguous());
}

TEST_F(TokenFilesTest, CutsIdsIntoWindowsThatDoNotOverlap) {
  Write("train.bin", LlmC(Counting(500, 14)));
  Write("val.bin", LlmC(Counting(700, 4)));
  auto train = Open(folder_);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 3);
  EXPECT_EQ((*train)->facts().name, "tokens");
  EXPECT_EQ((*train)->facts().num_classes, 1000);
  const Batch batch = (*train)->Gather({2, 0});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THAT(Values(batch.data), ElementsAre(508, 509, 510, 500, 501, 502));
  EXPECT_THAT(Values(batch.target), ElementsAre(509, 510, 511, 501, 502, 503));
  EXPECT_THROW((*train)->Gather({3}), c10::Error);
  auto test = Open(folder_, Split::kTest);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_THAT(FirstTokens(**test), ElementsAre(700));
}

TEST_F(TokenFilesTest, ReadsAllFormats) {
  const std::vector<int64_t> ids = Counting(70000, 8), small = Counting(5, 8);
  for (const auto& [bytes, vocabulary, first] :
       {std::tuple(LlmC(small), int64_t{100}, 5),
        std::tuple(Header(20240801, 7, 8) + Bytes<uint32_t>(small),
                   int64_t{100}, 5),
        std::tuple(Header(20240801, 7, 8) + Bytes<uint32_t>(ids),
                   int64_t{128256}, 70000),
        std::tuple(Bytes<uint16_t>(small), int64_t{65536}, 5),
        std::tuple(Bytes<uint32_t>(small), int64_t{65537}, 5),
        std::tuple(Bytes<uint32_t>(ids), int64_t{128256}, 70000)}) {
    auto dataset =
        Open(Write("ids.bin", bytes), Split::kTrain, int64_t{vocabulary});
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_THAT(FirstTokens(**dataset), ElementsAre(first, first + 4));
  }
}

TEST_F(TokenFilesTest, WindowsDoNotCrossShards) {
  // In the order of names, not of creation.
  Write("fineweb_train_000002.bin", LlmC(Counting(200, 9)));
  Write("fineweb_train_000001.bin", LlmC(Counting(100, 7)));
  Write("fineweb_val_000000.bin", LlmC(Counting(300, 8)));
  Write(".train.bin", "hidden");
  Write("train.txt", "text");
  Write("merges.bin", "neither");
  EXPECT_THAT(FirstTokens(**Open(folder_)), ElementsAre(100, 200, 204));
  EXPECT_THAT(FirstTokens(**Open(folder_, Split::kTest)),
              ElementsAre(300, 304));
}

TEST_F(TokenFilesTest, WithoutValFilesTheLastTenthOfTheWindowsIsTheTestSplit) {
  Write("intervals_train_0.bin", LlmC(Counting(0, 19 * 4)));
  const std::string second =
      Write("intervals_train_1.bin", LlmC(Counting(400, 10 * 4)));
  EXPECT_EQ((*Open(folder_))->size(), 27);
  EXPECT_EQ(FirstTokens(**Open(folder_)).back(), 400 + 7 * 4);
  EXPECT_THAT(FirstTokens(**Open(folder_, Split::kTest)),
              ElementsAre(400 + 8 * 4, 400 + 9 * 4));
  EXPECT_EQ((*Open(second))->size(), 9);
  EXPECT_THAT(FirstTokens(**Open(second, Split::kTest)), ElementsAre(436));
}

TEST_F(TokenFilesTest, GivesTheFirstWindowsOfTheSizeAskedFor) {
  const std::string path = Write("ids.bin", LlmC(Counting(0, 80)));
  auto dataset = OpenDataset({.name = "tokens",
                              .data_dir = path,
                              .train_size = 2,
                              .sequence_length = 3,
                              .num_classes = 80},
                             Split::kTrain);
  EXPECT_THAT(FirstTokens(**dataset), ElementsAre(0, 4));
}

TEST_F(TokenFilesTest, AnIdBeyondTheVocabularyIsFoundWhenItsWindowIsRead) {
  // Position 7 is the last of its window: a target only.
  std::vector<int64_t> ids = Counting(0, 12);
  ids[7] = 300;
  Write("train.bin", LlmC(ids));
  auto dataset = Open(folder_, Split::kTrain, 300);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->Gather({0}).data.size(0), 1);
  try {
    (*dataset)->Gather({0, 1});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                HasSubstr(folder_ + "/train.bin has the id 300 at position 7 "
                                    "(byte offset 1038), but the model's "
                                    "vocabulary is 0 .. 299; "));
  }
}

TEST_F(TokenFilesTest, AnIdBeyondTheVocabularyInTheFirstWindowIsRefused) {
  Write("train_0.bin", LlmC(Counting(0, 8)));
  const std::string second = Write("train_1.bin", LlmC(Counting(10, 8)));
  EXPECT_THAT(
      Complaint(folder_, 13),
      AllOf(HasSubstr(second + " has the id 13 at position 3 (byte "
                               "offset 1030)"),
            HasSubstr("vocabulary is 0 .. 12;"), HasSubstr("--model_size")));
  EXPECT_TRUE(Open(folder_, Split::kTrain, 14).ok());
}

TEST_F(TokenFilesTest, RefusesTheOtherWidth) {
  const std::string wide = Write("wide.bin", Bytes<uint32_t>(Counting(1, 40)));
  EXPECT_THAT(Complaint(wide),
              AllOf(HasSubstr(wide + " seems to hold uint32 ids"),
                    HasSubstr("every second id of the first 80 is 0; write it "
                              "as uint16, or with llm.c's header")));
  const std::string narrow =
      Write("narrow.bin", Bytes<uint16_t>(Counting(2, 40)));
  EXPECT_THAT(
      Complaint(narrow, 100000),
      AllOf(HasSubstr(narrow + " has the id 196610 at position 0 (byte offset "
                               "0)"),
            HasSubstr("does not hold uint32 ids, the width for this "
                      "vocabulary, write it with llm.c's header")));
  EXPECT_TRUE(Open(narrow).ok());
  // A file of zeros does not seem to hold uint32 ids.
  EXPECT_TRUE(
      Open(Write("zeros.bin", Bytes<uint16_t>(std::vector<int64_t>(40, 0))))
          .ok());
}

TEST_F(TokenFilesTest, RefusesASizeThatIsNotThatOfIds) {
  EXPECT_THAT(Complaint(Write("odd.bin", std::string(41, 'a')), 65536),
              HasSubstr("odd.bin has 41 bytes, which is not a multiple of 2"));
  EXPECT_THAT(Complaint(Write("even.bin", std::string(42, '\0')), 65537),
              HasSubstr("has 42 bytes, which is not a multiple of 4"));
  const std::string torn = Write("torn.bin", LlmC(Counting(0, 40)));
  std::filesystem::resize_file(torn, 1100);
  EXPECT_THAT(Complaint(torn),
              HasSubstr(torn + " has 1100 bytes, but its header says 40 ids of "
                               "2 bytes, which makes 1104; it is incomplete"));
  std::filesystem::resize_file(torn, 1000);
  EXPECT_THAT(Complaint(torn), HasSubstr("torn.bin has 1000 bytes, but its"));
  EXPECT_THAT(Complaint(Write("negative.bin", Header(20240520, 1, -4))),
              HasSubstr("says -4 ids"));
}

TEST_F(TokenFilesTest, RefusesAnotherVersion) {
  const std::string ids = Bytes<uint16_t>(Counting(0, 8));
  EXPECT_THAT(Complaint(Write("new.bin", Header(20240520, 2, 8) + ids)),
              HasSubstr("new.bin has version 2 of llm.c's format 20240520, of "
                        "which only version 1 is supported"));
}

TEST_F(TokenFilesTest, RefusesFilesWithoutAWindow) {
  EXPECT_THAT(Complaint(Write("empty.bin", "")),
              HasSubstr("empty.bin is empty; write such files with"));
  EXPECT_THAT(Complaint(Write("short.bin", LlmC({1, 2, 3}))),
              AllOf(HasSubstr("short.bin has 3 ids, but a window has 4"),
                    HasSubstr("smaller --sequence_length")));
  const std::string few = Write("few.bin", LlmC(Counting(0, 4 * 9)));
  EXPECT_EQ((*Open(few))->size(), 9);
  EXPECT_THAT(std::string(Open(few, Split::kTest).status().message()),
              HasSubstr(few + " has fewer than 10 windows of 4 ids, the last "
                              "tenth of which is the test split; add a "
                              "*val*.bin file"));
}

TEST_F(TokenFilesTest, RefusesAFolderWithoutTrainFiles) {
  EXPECT_THAT(Complaint(folder_),
              AllOf(HasSubstr(folder_ + " holds no *train*.bin file, but 0 "),
                    HasSubstr("by --data_dir"),
                    HasSubstr("examples/tokenize_text.py")));
  Write("val.bin", LlmC(Counting(0, 8)));
  Write("ids.bin", LlmC(Counting(0, 8)));
  EXPECT_THAT(Complaint(folder_),
              HasSubstr("but 1 *val*.bin and 1 other .bin files"));
}

TEST_F(TokenFilesTest, SaysWhatIsMissing) {
  const absl::Status status = Open(folder_ + "/nowhere").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("there is no file or folder " + folder_ + "/nowhere; name"));
  EXPECT_THAT(Complaint(folder_, 0),
              HasSubstr(folder_ + " is for models with a vocabulary"));
}

}  // namespace
}  // namespace rankwise
