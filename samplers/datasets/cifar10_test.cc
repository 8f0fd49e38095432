#include "samplers/datasets/cifar10.h"

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
using ::testing::HasSubstr;

const char* const kTrainFiles[] = {"data_batch_1.bin", "data_batch_2.bin",
                                   "data_batch_3.bin", "data_batch_4.bin",
                                   "data_batch_5.bin"};

// What the test release has in a record: label and pixels tell file and record.
uint8_t LabelOf(int file, int64_t record) { return (record + file) % 10; }
uint8_t PixelOf(int file, int64_t record, int64_t pixel) {
  return static_cast<uint8_t>(file * 50 + record * 7 + pixel);
}

void WriteFile(const std::string& path, int file) {
  std::string bytes(Cifar10::kFileBytes, '\0');
  size_t at = 0;
  for (int64_t record = 0; record < Cifar10::kRecordsPerFile; ++record) {
    bytes[at++] = static_cast<char>(LabelOf(file, record));
    for (int64_t pixel = 0; pixel < Cifar10::kPixelBytes; ++pixel) {
      bytes[at++] = static_cast<char>(PixelOf(file, record, pixel));
    }
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

// A complete release, written once, and copies of its test split to spoil.
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

  // A folder of this test's own, with the intact test_batch.bin.
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
  return Cifar10::Open(folder, Split::kTest, size).status();
}

TEST_F(Cifar10Test, ReadsRecordsOfAllFiles) {
  auto dataset = Cifar10::Open(release_, Split::kTrain, 50000);
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
    const uint8_t* pixels =
        batch.data.const_data_ptr<uint8_t>() + i * Cifar10::kPixelBytes;
    for (const int64_t pixel : {0, 1, 1024, 3071}) {
      EXPECT_EQ(pixels[pixel], PixelOf(file, record, pixel));
    }
  }
}

TEST_F(Cifar10Test, ReadsTheTestSplitOrItsFront) {
  auto whole = Cifar10::Open(release_, Split::kTest, 10000);
  ASSERT_TRUE(whole.ok()) << whole.status();
  auto front = Cifar10::Open(release_, Split::kTest, 12);
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
  auto dataset = Cifar10::Open(release_, Split::kTest, 10);
  EXPECT_THROW((*dataset)->Gather({10}), c10::Error);
  EXPECT_THROW((*dataset)->Gather({-1}), c10::Error);
}

TEST_F(Cifar10Test, RefusesMoreThanThereIs) {
  EXPECT_THAT(MessageOf(OpenTest(release_, 10001)),
              HasSubstr("10001 examples of the test split are asked for; it "
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

TEST_F(Cifar10Test, NamesAMissingFile) {
  const std::string folder = OwnFolder();
  const absl::Status status =
      Cifar10::Open(folder, Split::kTrain, 50000).status();
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
              HasSubstr("foreign from byte offset 30730000"));
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

}  // namespace
}  // namespace rankwise
