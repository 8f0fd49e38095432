#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {
namespace {

DatasetOr Open(const char* name, const std::string& data_dir, Split split,
               int64_t size, int64_t sequence_length = 128) {
  return OpenDataset({.name = name,
                      .data_dir = data_dir,
                      .train_size = size,
                      .test_size = size,
                      .sequence_length = sequence_length},
                     split);
}

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kTrainFiles[] = {"data_batch_1.bin", "data_batch_2.bin",
                                   "data_batch_3.bin", "data_batch_4.bin",
                                   "data_batch_5.bin"};

// Contents of the test release: label and pixels identify file and record.
uint8_t LabelOf(int file, int64_t record) { return (record + file) % 10; }
uint8_t PixelOf(int file, int64_t record, int64_t pixel) {
  return static_cast<uint8_t>(file * 50 + record * 7 + pixel);
}

void WriteFile(const std::string& path, int file) {
  std::string bytes(10000 * 3073, '\0');
  size_t at = 0;
  for (int64_t record = 0; record < 10000; ++record) {
    bytes[at++] = static_cast<char>(LabelOf(file, record));
    for (int64_t pixel = 0; pixel < 3072; ++pixel) {
      bytes[at++] = static_cast<char>(PixelOf(file, record, pixel));
    }
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

// A complete release, written once, and copies of its test split to corrupt.
class Cifar10Test : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    release_ = testing::TempDir() + "release";
    std::filesystem::create_directories(release_);
    for (int file = 0; file < 5; ++file) {
      WriteFile(release_ + "/" + kTrainFiles[file], file + 1);
    }
    WriteFile(release_ + "/test_batch.bin", 0);
  }

  // Creates a folder for the current test with the intact test_batch.bin.
  std::string OwnFolder() {
    const std::string folder =
        testing::TempDir() +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(
        release_ + "/test_batch.bin", folder + "/test_batch.bin",
        std::filesystem::copy_options::overwrite_existing);
    return folder;
  }

  static std::string release_;
};

std::string Cifar10Test::release_;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

absl::Status OpenTest(const std::string& folder, int64_t size = 10000) {
  return Open("cifar10", folder, Split::kTest, size).status();
}

TEST_F(Cifar10Test, ReadsRecordsOfAllFiles) {
  auto dataset = Open("cifar10", release_, Split::kTrain, 50000);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 50000);
  const std::vector<int64_t> indices = {49999, 0, 10000, 0, 31234};
  const Batch batch = (*dataset)->Gather(indices);
  ASSERT_EQ(batch.data.sizes(), at::IntArrayRef({5, 3, 32, 32}));
  ASSERT_EQ(batch.data.scalar_type(), at::kByte);
  ASSERT_EQ(batch.target.scalar_type(), at::kLong);
  for (size_t i = 0; i < indices.size(); ++i) {
    const int file = static_cast<int>(indices[i] / 10000) + 1;
    const int64_t record = indices[i] % 10000;
    EXPECT_EQ(batch.target.const_data_ptr<int64_t>()[i], LabelOf(file, record));
    const uint8_t* pixels = batch.data.const_data_ptr<uint8_t>() + i * 3072;
    for (const int64_t pixel : {0, 1, 1024, 3071}) {
      EXPECT_EQ(pixels[pixel], PixelOf(file, record, pixel));
    }
  }
}

TEST_F(Cifar10Test, ReadsTheTestSplitOrItsFront) {
  auto whole = Open("cifar10", release_, Split::kTest, 10000);
  ASSERT_TRUE(whole.ok()) << whole.status();
  auto front = Open("cifar10", release_, Split::kTest, 12);
  ASSERT_TRUE(front.ok()) << front.status();
  EXPECT_EQ((*front)->size(), 12);
  EXPECT_TRUE((*front)->Gather({11}).data.equal((*whole)->Gather({11}).data));
  EXPECT_EQ((*front)->Gather({}).data.size(0), 0);
}

TEST_F(Cifar10Test, FindsTheFolderThatTheArchiveMakes) {
  const std::string outer = testing::TempDir() + "outer";
  std::filesystem::create_directories(outer);
  std::filesystem::create_directory_symlink(release_,
                                            outer + "/cifar-10-batches-bin");
  EXPECT_TRUE(OpenTest(outer).ok()) << OpenTest(outer);
}

TEST_F(Cifar10Test, ThrowsBeyondTheEnd) {
  auto dataset = Open("cifar10", release_, Split::kTest, 10);
  EXPECT_THROW((*dataset)->Gather({10}), c10::Error);
  EXPECT_THROW((*dataset)->Gather({-1}), c10::Error);
}

TEST_F(Cifar10Test, RefusesMoreThanThereIs) {
  EXPECT_THAT(MessageOf(OpenTest(release_, 10001)),
              HasSubstr("10001 examples of the test split are requested; it "
                        "has 10000"));
  EXPECT_THAT(MessageOf(OpenTest(release_, -1)), HasSubstr("-1 examples"));
}

TEST_F(Cifar10Test, SaysWhatToDownloadWithoutAFolder) {
  EXPECT_THAT(MessageOf(OpenTest("")),
              AllOf(HasSubstr("--data_dir"), HasSubstr("cifar-10-binary")));
  const absl::Status status = OpenTest("/no/such/folder");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(
      MessageOf(status),
      AllOf(HasSubstr("no folder /no/such/folder"),
            HasSubstr("https://www.cs.toronto.edu/~kriz/cifar-10-binary"),
            HasSubstr("data_batch_1.bin .. data_batch_5.bin"),
            HasSubstr("test_batch.bin")));
}

TEST_F(Cifar10Test, SaysWhyAFolderCannotBeOpened) {
  const std::string loop = testing::TempDir() + "loop";
  std::filesystem::remove(loop);
  std::filesystem::create_symlink(loop, loop);
  EXPECT_THAT(MessageOf(OpenTest(loop)),
              HasSubstr("cannot open " + loop + ": Too many levels"));
}

TEST_F(Cifar10Test, NamesAMissingFile) {
  const std::string folder = OwnFolder();
  const absl::Status status =
      Open("cifar10", folder, Split::kTrain, 50000).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(
      MessageOf(status),
      AllOf(HasSubstr("no file " + folder + "/data_batch_1.bin"),
            HasSubstr("the train split needs"), HasSubstr("data_batch_5.bin"),
            HasSubstr("cifar-10-binary")));
}

TEST_F(Cifar10Test, RefusesATornFile) {
  const std::string folder = OwnFolder();
  const std::string file = folder + "/test_batch.bin";
  std::filesystem::resize_file(file, 3073 * 4000 + 17);
  const absl::Status status = OpenTest(folder);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr(file + " has 12292017 bytes"),
                    HasSubstr("byte offset 12292017, in record 4000"),
                    HasSubstr("has 30730000 bytes")));
}

TEST_F(Cifar10Test, RefusesAnEmptyAndAnOverlongFile) {
  const std::string folder = OwnFolder();
  std::filesystem::resize_file(folder + "/test_batch.bin", 0);
  EXPECT_THAT(MessageOf(OpenTest(folder)),
              HasSubstr("test_batch.bin has 0 bytes"));
  std::filesystem::resize_file(folder + "/test_batch.bin", 30730001);
  EXPECT_THAT(MessageOf(OpenTest(folder)),
              HasSubstr("foreign data from byte offset 30730000"));
}

TEST_F(Cifar10Test, RefusesALabelAboveNine) {
  const std::string folder = OwnFolder();
  std::fstream file(folder + "/test_batch.bin",
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(3073 * 1234);
  file.put('\x0a');
  file.close();
  const absl::Status status = OpenTest(folder);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr(folder + "/test_batch.bin has the label 10"),
                    HasSubstr("byte offset 3792082 (record 1234)")));
}

TEST_F(Cifar10Test, RefusesAFolderInPlaceOfAFile) {
  const std::string folder = OwnFolder();
  std::filesystem::remove(folder + "/test_batch.bin");
  std::filesystem::create_directory(folder + "/test_batch.bin");
  EXPECT_THAT(MessageOf(OpenTest(folder)), HasSubstr("not a regular file"));
}

// Creates an empty folder.
std::string Folder(const std::string& name) {
  const std::string path = testing::TempDir() + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  return path;
}

void Write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Creates a file of `bytes` bytes 0, 1, 2 ...
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
      Open("text", path, split, 10, sequence_length).status().message());
}

TEST(TextTest, CutsTheBytesIntoWindowsThatDoNotOverlap) {
  auto text = Open("text", Counting("count", 200), Split::kTrain, 1000, 3);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->size(), 180 / 4);
  EXPECT_EQ((*text)->facts().num_classes, 256);
  EXPECT_THAT((*text)->facts().example_shape, ElementsAre(3));
  const Batch batch = (*text)->Gather({44, 0});
  EXPECT_THAT(Values(batch.data), ElementsAre(176, 177, 178, 0, 1, 2));
  EXPECT_THAT(Values(batch.target), ElementsAre(177, 178, 179, 1, 2, 3));
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THROW((*text)->Gather({45}), c10::Error);
}

TEST(TextTest, TheLastTenthIsTheTestSplit) {
  auto text = Open("text", Counting("tenth", 200), Split::kTest, 1000, 4);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->size(), 4);
  EXPECT_THAT(Values((*text)->Gather({0}).data),
              ElementsAre(180, 181, 182, 183));
}

TEST(TextTest, GivesTheFirstSoManyWindows) {
  auto text = Open("text", Counting("few", 200), Split::kTrain, 7, 3);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->size(), 7);
}

TEST(TextTest, TakesTheOnlyFileOfAFolder) {
  const std::string folder = Folder("only");
  Write(folder + "/.hidden", "x");
  EXPECT_THAT(Complaint(folder, 3), HasSubstr("only holds 0 files; name the"));
  Write(folder + "/a.txt", std::string(100, 'a'));
  EXPECT_TRUE(Open("text", folder, Split::kTrain, 1, 3).ok());
  Write(folder + "/b.txt", std::string(100, 'b'));
  EXPECT_THAT(Complaint(folder, 3), HasSubstr("only holds 2 files"));
}

TEST(TextTest, SaysWhatIsMissing) {
  EXPECT_THAT(Complaint("", 3), HasSubstr("by --data_dir"));
  const absl::Status status =
      Open("text", testing::TempDir() + "nowhere", Split::kTrain, 1, 3)
          .status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere"));
}

TEST(TextTest, RefusesAFifoWithoutWaitingForAWriter) {
  const std::string fifo = Folder("with_fifo") + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(Complaint(fifo, 3), HasSubstr("not a regular file"));
}

TEST(TextTest, RefusesAFileShorterThanAWindow) {
  const std::string path = Counting("short", 100);
  EXPECT_TRUE(Open("text", path, Split::kTest, 1, 9).ok());
  EXPECT_THAT(Complaint(path, 10, Split::kTest),
              AllOf(HasSubstr("has 100 bytes, 10 of them for the test split"),
                    HasSubstr("a window has 11"),
                    HasSubstr("smaller --sequence_length")));
  EXPECT_THAT(Complaint(path, 90), HasSubstr("90 of them for the train split"));
  EXPECT_THAT(Complaint(path, 0), HasSubstr("an example is to have 0 tokens"));
}

}  // namespace
}  // namespace rankwise
