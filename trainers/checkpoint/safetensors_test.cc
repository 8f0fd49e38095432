#include "trainers/checkpoint/safetensors.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Output of Python's safetensors 0.6.2 for the tensors of Golden().
constexpr char kGoldenHeader[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
    R"("wide":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
    R"("conv1.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]},)"
    R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[32,32]},)"
    R"("ids":{"dtype":"I32","shape":[2],"data_offsets":[32,40]},)"
    R"("brain":{"dtype":"BF16","shape":[1,2],"data_offsets":[40,44]},)"
    R"("half":{"dtype":"F16","shape":[1],"data_offsets":[44,46]},)"
    R"("bytes":{"dtype":"U8","shape":[2],"data_offsets":[46,48]},)"
    R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[48,51]}})";
constexpr char kGoldenDataHex[] =
    "0700000000000000000000000000d03f000000bf0000003f0000c03f0000204003000000fc"
    "ffffff004080bf003e01"
    "ff010001";

std::string GoldenBytes() {
  const std::string length("\x38\x02\0\0\0\0\0\0", 8);
  return length + kGoldenHeader + absl::HexStringToBytes(kGoldenDataHex);
}

NamedTensors Golden() {
  // The weight is column-major: its strides must not affect the file.
  return {
      {"conv1.weight",
       torch::tensor({-0.5f, 1.5f, 0.5f, 2.5f}).reshape({2, 2}).t()},
      {"steps", torch::tensor(int64_t{7})},
      {"mask", torch::tensor({true, false, true})},
      {"half", torch::full({1}, 1.5, torch::kHalf)},
      {"brain",
       torch::tensor({2.0f, -1.0f}).to(torch::kBFloat16).reshape({1, 2})},
      {"wide", torch::full({1}, 0.25, torch::kDouble)},
      {"ids", torch::tensor({3, -4}, torch::kInt)},
      {"bytes", torch::tensor({1, 255}, torch::kByte)},
      {"empty", torch::zeros({0, 3})},
  };
}

std::string Path() {
  return testing::TempDir() + "/" +
         testing::UnitTest::GetInstance()->current_test_info()->name() +
         ".safetensors";
}

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Returns the message of LoadSafetensors for a file of `bytes`.
std::string Refusal(const std::string& bytes) {
  const std::string path = Path();
  std::ofstream(path, std::ios::binary) << bytes;
  const auto contents = LoadSafetensors(path);
  EXPECT_EQ(contents.status().code(), absl::StatusCode::kDataLoss);
  const std::string message(contents.status().message());
  EXPECT_THAT(message, StartsWith(absl::StrCat("cannot read safetensors file ",
                                               path, ": ")));
  return message;
}

TEST(SafetensorsTest, WritesPythonsBytes) {
  const absl::Status status =
      SaveSafetensors(Path(), Golden(), {{"format", "pt"}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Contents(Path()), GoldenBytes());
}

TEST(SafetensorsTest, ReadsPythonsBytes) {
  std::ofstream(Path(), std::ios::binary) << GoldenBytes();
  const auto contents = LoadSafetensors(Path());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->metadata.at("format"), "pt");
  std::map<std::string, torch::Tensor> read(contents->tensors.begin(),
                                            contents->tensors.end());
  EXPECT_EQ(read.size(), Golden().size());
  for (const auto& [name, tensor] : Golden()) {
    EXPECT_EQ(read[name].scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(read[name].equal(tensor)) << name;
  }
}

TEST(SafetensorsTest, AFileWithoutTensorsIsAFile) {
  ASSERT_TRUE(SaveSafetensors(Path(), {}).ok());
  const auto contents = LoadSafetensors(Path());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_TRUE(contents->tensors.empty());
}

TEST(SafetensorsTest, AnyBytesOfTheDataAreRead) {
  ASSERT_TRUE(SaveSafetensors(Path(), Golden(), {{"format", "pt"}}).ok());
  const auto header = LoadSafetensorsHeader(Path());
  ASSERT_TRUE(header.ok()) << header.status();
  const auto bytes = LoadSafetensorsBytes(Path(), *header, 46, 48);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(bytes->equal(torch::tensor({1, 255}, torch::kByte)));
  EXPECT_THAT(
      std::string(
          LoadSafetensorsBytes(Path(), *header, 50, 52).status().message()),
      HasSubstr("at byte 627: the file ends, 1 bytes short"));
}

// Sources are evaluated in turn, and the metadata may be completed last.
TEST(SafetensorsTest, OneTensorIsInMemoryAtATime) {
  std::vector<TensorSource> sources;
  std::weak_ptr<int> last;
  for (const char* name : {"b", "a"}) {
    sources.push_back({{name, torch::kFloat, {2}}, [&, name] {
                         EXPECT_TRUE(last.expired());
                         auto alive = std::make_shared<int>();
                         last = alive;
                         static float values[2];
                         values[0] = *name;
                         return torch::from_blob(
                             values, {2}, [alive](void*) {}, torch::kFloat);
                       }});
  }
  ASSERT_TRUE(AssignOffsets(sources).ok());
  const absl::Status status =
      WriteSafetensors(Path(), sources, {{"k", "..."}}, [] {
        return SafetensorsMetadata{{"k", "end"}};
      });
  ASSERT_TRUE(status.ok()) << status;
  const auto contents = LoadSafetensors(Path());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->metadata.at("k"), "end");
  ASSERT_EQ(contents->tensors.size(), 2u);
  EXPECT_EQ(contents->tensors[0].first, "a");
  EXPECT_EQ(contents->tensors[1].second[0].item<float>(), 'b');
}

TEST(SafetensorsTest, ChannelsLastWeightsAreWrittenRowMajor) {
  const torch::Tensor weight = torch::rand({4, 3, 3, 3});
  const torch::Tensor strided =
      weight.contiguous(torch::MemoryFormat::ChannelsLast);
  ASSERT_TRUE(SaveSafetensors(Path(), {{"w", strided}}).ok());
  const auto contents = LoadSafetensors(Path());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_TRUE(contents->tensors[0].second.equal(weight));
}

TEST(SafetensorsTest, RefusesAFileThatIsTooShortForItsLength) {
  EXPECT_THAT(Refusal(""),
              HasSubstr("at byte 0: the file ends, 8 bytes short"));
  EXPECT_THAT(Refusal("abc"),
              HasSubstr("at byte 3: the file ends, 5 bytes short"));
}

TEST(SafetensorsTest, RefusesAHeaderLongerThanTheFile) {
  EXPECT_THAT(Refusal(GoldenBytes().substr(0, 300)),
              HasSubstr("at byte 0: a header of 568 bytes is announced, but "
                        "292 bytes follow"));
  EXPECT_THAT(Refusal("a text file, not tensors"),
              HasSubstr("but 16 bytes follow"));
}

TEST(SafetensorsTest, RefusesTornData) {
  const std::string bytes = GoldenBytes();
  EXPECT_THAT(
      Refusal(bytes.substr(0, bytes.size() - 1)),
      HasSubstr(
          "tensor 'mask': data_offsets [48, 51] are outside the file's 50"));
}

TEST(SafetensorsTest, RefusesTrailingBytes) {
  EXPECT_THAT(Refusal(GoldenBytes() + "more"),
              HasSubstr("at byte 627: 4 bytes belong to no tensor"));
}

TEST(SafetensorsTest, RefusesABrokenHeader) {
  std::string bytes = GoldenBytes();
  bytes[8] = 'x';
  EXPECT_THAT(Refusal(bytes), HasSubstr("at byte 8: the header is not JSON"));
}

TEST(SafetensorsTest, NamesAFileThatCannotBeOpened) {
  EXPECT_EQ(LoadSafetensors("/nowhere/m.safetensors").status().message(),
            "cannot read safetensors file /nowhere/m.safetensors: cannot open "
            "it: No such file or "
            "directory");
  EXPECT_THAT(
      std::string(LoadSafetensors(testing::TempDir()).status().message()),
      HasSubstr("cannot open it: Is a directory"));
}

TEST(SafetensorsTest, RefusesToSaveWhatIsNotADenseTensor) {
  EXPECT_EQ(SaveSafetensors("m", {{"bias", torch::Tensor()}}).message(),
            "cannot save m: tensor 'bias' is not a dense tensor");
  EXPECT_EQ(SaveSafetensors("m", {{"w", torch::eye(2).to_sparse()}}).message(),
            "cannot save m: tensor 'w' is not a dense tensor");
  EXPECT_FALSE(std::filesystem::exists("m"));
}

TEST(SafetensorsTest, RefusesWhatCannotBeWritten) {
  EXPECT_EQ(SaveSafetensors(
                "m", {{"spectrum", torch::ones({1}, torch::kComplexFloat)}})
                .message(),
            "cannot save m: tensor 'spectrum' has type ComplexFloat, which "
            "safetensors files cannot hold here");
  EXPECT_EQ(SaveSafetensors("m", {{"w", torch::ones({1})},
                                  {"w", torch::ones({1}, torch::kByte)}})
                .message(),
            "cannot save m: the tensor name 'w' is taken: names must be "
            "unique");
  EXPECT_EQ(SaveSafetensors("m", {}, {{"note", "\xff"}}).message(),
            "cannot save m: a tensor's name or the metadata is not UTF-8 text");
  EXPECT_FALSE(std::filesystem::exists("m"));
}

TEST(SafetensorsTest, TheHeaderIsPaddedAndReadBack) {
  ASSERT_TRUE(SaveSafetensors(Path(),
                              {{"w\"1", torch::ones({2, 3}, torch::kHalf)}},
                              {{"k", "v"}})
                  .ok());
  EXPECT_EQ((std::filesystem::file_size(Path()) - 12) % 8, 0u);
  const auto header = LoadSafetensorsHeader(Path());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata.at("k"), "v");
  ASSERT_EQ(header->entries.size(), 1u);
  EXPECT_EQ(header->entries[0].name, "w\"1");
  EXPECT_EQ(header->entries[0].dtype, c10::ScalarType::Half);
  EXPECT_THAT(header->entries[0].shape, ElementsAre(2, 3));
}

struct BadHeader {
  const char* text;
  int64_t data_bytes;
  const char* message;
};

constexpr BadHeader kBadHeaders[] = {
    {R"({"w":)", 0, "at byte 13: the header is not JSON"},
    {"", 0, "at byte 8: the header is not JSON"},
    {"\x80\x02}q", 0, "at byte 8: the header is not JSON"},
    {"[1]", 0, "at byte 8: the header is not a JSON object"},
    {R"({"w":1e400})", 0, "at byte 8: a number of the header is too large"},
    {R"({"\u001b[2J":{}})", 0,
     "tensor '\\x1b[2J': is not an object with dtype, shape and "
     "data_offsets"},
    {R"({"__metadata__":{"step":3}})", 0,
     "at byte 9: tensor '__metadata__': is not an object of strings"},
    {R"({"w":{"dtype":"F32","shape":[1]}})", 4,
     "at byte 9: tensor 'w': is not an object with dtype, shape and "
     "data_offsets"},
    {R"({"w":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4,
     "at byte 9: tensor 'w': unknown dtype 'F4'"},
    {R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
     "at byte 9: tensor 'w': the shape is not a list of whole numbers"},
    {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
     "at byte 9: tensor 'w': data_offsets is not a pair of whole numbers"},
    {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3,
     "at byte 9: tensor 'w': data_offsets [0, 4] are outside the file's 3 data "
     "bytes"},
    {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
     "at byte 9: tensor 'w': data_offsets [4, 0] are outside the file's 4 data "
     "bytes"},
    {R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,4]}})", 4,
     "at byte 9: tensor 'w': shape [2, 3] of F32 needs 24 bytes but "
     "data_offsets hold 4"},
    {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
     0,
     "at byte 9: tensor 'w': shape [4611686018427387904, 4] of F32 needs too "
     "many bytes but "
     "data_offsets hold 0"},
    {R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3, "at byte 114: tensor 'w' overlaps the tensor before it"},
    {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     "at byte 61: tensor 'w' leaves a hole before it"},
    {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 5,
     "at byte 63: 3 bytes belong to no tensor"},
};

TEST(SafetensorsTest, RefusesMoreDimensionsThanPyTorchTakes) {
  std::string ones = "1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  const std::string text =
      R"({"w":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(text.size());
  EXPECT_THAT(Refusal(length + text + "x"),
              HasSubstr("the shape has 65 dimensions; at most 64 are read"));
}

// Deeply nested values are not copied, which would overflow the stack.
TEST(SafetensorsTest, RefusesAHeaderThatIsNestedDeeply) {
  const int depth = 1 << 16;
  std::string text = "{\"w\":";
  for (int i = 0; i < depth; ++i) text += "{\"a\":";
  text += "1" + std::string(depth, '}') + ",\"v\":1}";
  std::string length(8, '\0');
  for (int i = 0; i < 4; ++i)
    length[i] = static_cast<char>(text.size() >> 8 * i);
  EXPECT_THAT(Refusal(length + text),
              HasSubstr("is not an object with dtype, shape and data_offsets"));
}

TEST(SafetensorsTest, RefusesBadHeadersNamingTheByte) {
  for (const BadHeader& bad : kBadHeaders) {
    const std::string text = bad.text;
    std::string length(8, '\0');
    length[0] = static_cast<char>(text.size());  // all are below 256 bytes
    EXPECT_THAT(Refusal(length + text + std::string(bad.data_bytes, 'x')),
                EndsWith(absl::StrCat(": ", bad.message)))
        << text;
  }
}

}  // namespace
}  // namespace rankwise
