#include "trainers/checkpoint/safetensors_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;

TEST(SafetensorsHeaderTest, LaysOutWiderTypesFirstThenByName) {
  std::vector<TensorEntry> entries = {{"b", c10::ScalarType::Byte, {3}},
                                      {"z", c10::ScalarType::Float, {2}},
                                      {"a", c10::ScalarType::Float, {}},
                                      {"n", c10::ScalarType::Long, {1, 2}}};
  ASSERT_TRUE(LayOut(entries).ok());
  std::vector<std::string> placed;
  for (const auto& e : entries)
    placed.push_back(absl::StrCat(e.name, e.begin, "-", e.end));
  EXPECT_THAT(placed, ElementsAre("n0-16", "a16-20", "z20-28", "b28-31"));
}

TEST(SafetensorsHeaderTest, RefusesWhatCannotBeWritten) {
  std::vector<TensorEntry> complex = {
      {"spectrum", c10::ScalarType::ComplexFloat, {1}}};
  EXPECT_EQ(LayOut(complex).message(),
            "tensor 'spectrum' has type ComplexFloat, which safetensors files "
            "cannot hold here");
  std::vector<TensorEntry> twice = {{"w", c10::ScalarType::Float, {1}},
                                    {"w", c10::ScalarType::Byte, {1}}};
  EXPECT_EQ(LayOut(twice).message(),
            "the tensor name 'w' is taken: names must be unique");
  EXPECT_EQ(EncodeHeader({{{"note", "\xff"}}, {}}).status().message(),
            "a tensor's name or the metadata is not UTF-8 text");
}

TEST(SafetensorsHeaderTest, EncodedHeaderIsPaddedAndParses) {
  SafetensorsHeader header = {{{"k", "v"}},
                              {{"w\"1", c10::ScalarType::Half, {2, 3}}}};
  ASSERT_TRUE(LayOut(header.entries).ok());
  const auto encoded = EncodeHeader(header);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(encoded->size() % 8, 0u);
  const auto parsed =
      ParseHeader(absl::string_view(*encoded).substr(kLengthBytes), 12);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->metadata, header.metadata);
  ASSERT_EQ(parsed->entries.size(), 1u);
  EXPECT_EQ(parsed->entries[0].name, "w\"1");
  EXPECT_EQ(parsed->entries[0].dtype, c10::ScalarType::Half);
  EXPECT_THAT(parsed->entries[0].shape, ElementsAre(2, 3));
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

TEST(SafetensorsHeaderTest, RefusesBadHeadersNamingTheByte) {
  for (const BadHeader& bad : kBadHeaders) {
    const auto header = ParseHeader(bad.text, bad.data_bytes);
    EXPECT_EQ(std::string(header.status().message()), bad.message) << bad.text;
  }
}

}  // namespace
}  // namespace rankwise
