#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "records/record.h"
#include "records/record_fields.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

using Limits = std::numeric_limits<double>;

// Fills every field of a record with a random value.
class RandomFields {
 public:
  explicit RandomFields(std::mt19937_64& random)
      : random_(random), length_(Below(4)) {}

  bool Has(const char*) const { return true; }
  void Text(const char*, std::string& out) {
    out = Pick({"", "1f1b", "a b/c"});
  }
  void Flag(const char*, bool& out) { out = Below(2) == 1; }
  void Choice(const char*, std::string& out,
              std::initializer_list<absl::string_view> choices) {
    out = std::string(choices.begin()[Below(choices.size())]);
  }
  void Count(const char*, int64_t& out, int64_t minimum = 0) {
    out = minimum + static_cast<int64_t>(random_() >> (2 + Below(62)));
  }
  void CountList(const char*, std::vector<int64_t>& out) {
    out.resize(Below(4));
    for (int64_t& count : out) Count("", count);
  }
  void Number(const char*, double& out) {
    out = Real();
    if (Below(8) == 0) out = Limits::quiet_NaN();
    if (Below(8) == 0) out = -Limits::infinity();
  }
  void Seconds(const char*, double& out) { out = std::abs(Real()); }
  void SecondsList(const char*, std::vector<double>& out) {
    out.resize(length_);
    for (double& seconds : out) Seconds("", seconds);
  }
  void Estimate(const char*, double& out, double maximum = 1e9) {
    out = Below(3) == 0 ? Limits::quiet_NaN()
                        : maximum * std::uniform_real_distribution()(random_);
  }
  template <typename T>
  void Object(const char*, T& out) {
    ListFields(*this, out);
  }
  template <typename T>
  void Objects(const char*, std::vector<T>& out) {
    out.resize(Below(4));
    for (T& object : out) ListFields(*this, object);
  }
  void TextMap(const char*, std::map<std::string, std::string>&) {}
  void SecondsMap(const char*, std::map<std::string, double>& out) {
    for (const char* axis : {"dp", "tp"}) {
      if (Below(2) == 1) Seconds("", out[axis]);
    }
  }
  void Below(const char*, int64_t& low, const char*, int64_t high) {
    low %= high;
  }
  void Check(bool, absl::string_view) {}

 private:
  size_t Below(size_t end) { return random_() % end; }
  std::string Pick(std::initializer_list<const char*> texts) {
    return texts.begin()[Below(texts.size())];
  }
  double Real() {
    const double whole[] = {0, -0.0, 1, 5e-324, 1e-310, 1.7e308, 1e22, 0.1};
    if (Below(3) == 0) return whole[Below(std::size(whole))];
    return std::exp(std::normal_distribution<double>(0, 10)(random_)) *
           (Below(4) == 0 ? -1 : 1);
  }

  std::mt19937_64& random_;
  const size_t length_;  // length of all lists of seconds
};

template <typename T>
std::string RandomLine(std::mt19937_64& random) {
  T record;
  RandomFields fields(random);
  ListFields(fields, record);
  return ToJsonLine(record);
}

// Reads a line and writes it again, so that NaNs compare equal.
std::optional<std::string> Read(const std::string& line) {
  const absl::StatusOr<Record> record = ParseRecord(line);
  if (!record.ok()) return std::nullopt;
  return ToJsonLine(*record);
}

std::string Mutated(std::string line, std::mt19937_64& random) {
  constexpr absl::string_view kBytes = "{}[]\",:0123456789.-+eEN \\\x01\xc3";
  const size_t at = random() % line.size();
  const char byte = kBytes[random() % kBytes.size()];
  switch (random() % 4) {
    case 0:
      line[at] = byte;
      break;
    case 1:
      line.insert(at, 1, byte);
      break;
    case 2:
      line.erase(at, 1 + random() % 3);
      break;
    default:
      line.insert(at, line.substr(random() % line.size(), random() % 30));
  }
  return line;
}

template <typename T>
class RecordLayoutTest : public testing::Test {};

using Kinds = testing::Types<StepRecord, EpochRecord, EvalRecord,
                             CheckpointRecord, ScheduleRecord, CollectiveRecord,
                             OverlapRecord, TrafficRecord, MemoryRecord,
                             TimelineRecord, RestartRecord, DivergenceRecord>;
TYPED_TEST_SUITE(RecordLayoutTest, Kinds);

TYPED_TEST(RecordLayoutTest, ReadsWhatIsWritten) {
  std::mt19937_64 random(1);
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string line = RandomLine<TypeParam>(random);
    const std::optional<std::string> back = Read(line);
    if (!back.has_value()) continue;  // rejected by a Check
    EXPECT_EQ(*back, line);
    ++read;
  }
  EXPECT_GT(read, 50);
}

// As another JSON library may write it: sorted keys, white space.
TYPED_TEST(RecordLayoutTest, ReadsAnyLayout) {
  std::mt19937_64 random(3);
  int read = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string line = RandomLine<TypeParam>(random);
    std::string other = nlohmann::json::parse(line).dump(1, ' ', true);
    EXPECT_EQ(Read(other), Read(line)) << other;
    read += Read(line).has_value() ? 1 : 0;
  }
  EXPECT_GT(read, 10);
}

TYPED_TEST(RecordLayoutTest,
           SurvivesDamagedLinesAndRefusesThoseThatAreNotJson) {
  std::mt19937_64 random(2);
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = Mutated(RandomLine<TypeParam>(random), random);
    const absl::StatusOr<Record> record = ParseRecord(line);
    EXPECT_TRUE(!record.ok() || nlohmann::json::accept(line)) << line;
    read += record.ok() ? 1 : 0;
    refused += record.status().message() == "this is not JSON" ? 1 : 0;
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 5000);
}

TEST(RecordLayout, AnotherLayoutIsReadAndAnotherValueRefused) {
  const std::string line = ToJsonLine(StepRecord());
  const auto with = [&line](const char* from, const char* to) {
    return Read(absl::StrReplaceAll(line, {{from, to}}));
  };
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{
           {"\"loss\":0", "\"loss\": 0"},         // a space
           {"\"loss\":0", "\"loss\":0,\"x\":1"},  // from a newer version
           {"\"loss\":0", "\"lo\\u0073s\":0"},
           {"{\"kind\"", " { \"kind\""}}) {
    EXPECT_EQ(with(from, to), line) << to;
  }
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{
           {"\"loss\":0", "\"more\":0"},  // unknown field
           {",\"loss\":0", ""},           // missing field
           {"\"loss\":0", "\"loss\":01"},
           {"\"loss\":0", "\"loss\":.5"},
           {"\"loss\":0", "\"loss\":1."},
           {"\"loss\":0", "\"loss\":nan"},
           {"\"loss\":0", "\"loss\":1e999"},
           {"\"examples\":0", "\"examples\":1.0"},
           {"\"examples\":0", "\"examples\":9223372036854775808"},
           {"\"examples\":0", "\"examples\":-1"},
           {"_seconds\":{}}", "_seconds\":{}}}"}}) {
    EXPECT_EQ(with(from, to), std::nullopt) << to;
  }
}

TEST(RecordLayout, AFieldThatANewerVersionAddedMayBeMissing) {
  const std::string line = ToJsonLine(ScheduleRecord());
  const std::string older = absl::StrReplaceAll(
      line, {{",\"exposed_transfer_seconds\":\"NaN\"", ""}});
  EXPECT_NE(older, line);
  EXPECT_EQ(Read(older), line);
  const std::string step = ToJsonLine(StepRecord());
  EXPECT_EQ(Read(absl::StrReplaceAll(step, {{",\"captured_seconds\":0", ""}})),
            step);
}

TEST(RecordLayout, TextThatIsNotPlainComesBack) {
  for (const char* path : {"a\"b", "a\\b", "\xc3\xa4", "\n", "\x7f", "a/b",
                           "\x01\b\f\r\t", "\xf0\x9f\x98\x80"}) {
    CheckpointRecord record;
    record.path = path;
    const std::string line = ToJsonLine(record);
    EXPECT_EQ(nlohmann::json::parse(line)["path"], path);
    const auto parsed = ParseRecord(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(std::get<CheckpointRecord>(*parsed).path, path);
  }
}

TEST(RecordLayout, EscapesAreThoseOfJson) {
  const auto path_of = [](const std::string& text) {
    CheckpointRecord record;
    record.path = "PATH";
    const auto parsed =
        ParseRecord(absl::StrReplaceAll(ToJsonLine(record), {{"PATH", text}}));
    return parsed.ok() ? std::get<CheckpointRecord>(*parsed).path : "refused";
  };
  EXPECT_EQ(path_of("\\u0041\\/\\u00e4"), "A/\xc3\xa4");
  EXPECT_EQ(path_of("\\ud83d\\ude00"), "\xf0\x9f\x98\x80");
  for (const char* text : {"\\x", "\\u12", "\\ud83d", "\\ude00", "\\u00g0",
                           "\\", "\xc3", "\xed\xa0\x80", "\t"}) {
    EXPECT_EQ(path_of(text), "refused") << text;
  }
}

TEST(RecordLayout, BytesThatAreNotUtf8AreReplaced) {
  for (const char* path : {"a\xff", "\xc3(", "\xe2\x82", "\xf0\x9f\x98",
                           "\xed\xa0\x80", "\xc0\x80", "\xf5z"}) {
    CheckpointRecord record;
    record.path = path;
    const auto parsed = ParseRecord(ToJsonLine(record));
    ASSERT_TRUE(parsed.ok()) << testing::PrintToString(path);
    EXPECT_THAT(std::get<CheckpointRecord>(*parsed).path,
                testing::HasSubstr("\xEF\xBF\xBD"));
  }
}

TEST(RecordLayout, AFieldThatIsNestedDeeplyIsRefused) {
  const std::string deep =
      std::string(100'000, '[') + std::string(100'000, ']');
  const std::string line = absl::StrReplaceAll(
      ToJsonLine(StepRecord()), {{"\"loss\":0", "\"loss\":" + deep}});
  EXPECT_THAT(std::string(ParseRecord(line).status().message()),
              testing::HasSubstr("\"loss\" should be a number"));
}

}  // namespace
}  // namespace rankwise
