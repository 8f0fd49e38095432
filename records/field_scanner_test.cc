#include "records/field_scanner.h"

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

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "records/field_reader.h"
#include "records/record.h"
#include "records/record_fields.h"
#include "records/record_json.h"
#include "records/record_kind.h"

namespace rankwise {
namespace {

using Limits = std::numeric_limits<double>;

// Gives every field of a record a value by chance.
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
  void Objects(const char*, std::vector<T>& out) {
    out.resize(Below(4));
    for (T& object : out) ListFields(*this, object);
  }
  void TextMap(const char*, std::map<std::string, std::string>&) {}
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
  const size_t length_;  // of all lists of seconds
};

template <typename T>
std::string Prefix() {
  return absl::StrCat("{\"kind\":\"", KindOf(T()).name, "\"");
}

// The record as the writer writes it, so that NaNs compare equal.
template <typename T>
std::optional<std::string> Scanned(const std::string& line) {
  const std::string prefix = Prefix<T>();
  if (line.rfind(prefix, 0) != 0) return std::nullopt;
  T record;
  FieldScanner scanner(absl::string_view(line).substr(prefix.size()));
  ListFields(scanner, record);
  if (!scanner.AtEnd()) return std::nullopt;
  return ToJsonLine(record);
}

template <typename T>
std::optional<std::string> Read(const std::string& line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  T record;
  FieldReader reader(object, "a");
  ListFields(reader, record);
  if (!reader.status().ok()) return std::nullopt;
  return ToJsonLine(record);
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
class FieldScannerTest : public testing::Test {};

using Kinds =
    testing::Types<StepRecord, EpochRecord, EvalRecord, CheckpointRecord,
                   ScheduleRecord, CollectiveRecord, OverlapRecord,
                   TrafficRecord, MemoryRecord, TimelineRecord>;
TYPED_TEST_SUITE(FieldScannerTest, Kinds);

TYPED_TEST(FieldScannerTest, ReadsWhatTheReaderReads) {
  std::mt19937_64 random(1);
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    TypeParam record;
    RandomFields fields(random);
    ListFields(fields, record);
    const std::string line = ToJsonLine(record);
    const std::optional<std::string> expected = Read<TypeParam>(line);
    EXPECT_EQ(Scanned<TypeParam>(line), expected) << line;
    read += expected.has_value() ? 1 : 0;
  }
  EXPECT_GT(read, 50);
}

TYPED_TEST(FieldScannerTest, NeverReadsWhatTheReaderRefuses) {
  std::mt19937_64 random(2);
  int scanned = 0;
  for (int i = 0; i < 20'000; ++i) {
    TypeParam record;
    RandomFields fields(random);
    ListFields(fields, record);
    const std::string line = Mutated(ToJsonLine(record), random);
    const std::optional<std::string> found = Scanned<TypeParam>(line);
    if (!found.has_value()) continue;
    ++scanned;
    EXPECT_EQ(found, Read<TypeParam>(line)) << line;
  }
  EXPECT_GT(scanned, 50);
}

TEST(FieldScanner, GivesUpAtAnotherLayout) {
  const std::string line = ToJsonLine(StepRecord());
  EXPECT_TRUE(Scanned<StepRecord>(line).has_value());
  const std::pair<const char*, const char*> unusual[] = {
      {"\"loss\":0", "\"loss\": 0"},         // a space
      {"\"loss\":0", "\"more\":0"},          // another field
      {",\"loss\":0", ""},                   // one that is missing
      {"\"loss\":0", "\"loss\":0,\"x\":1"},  // one that a newer version added
      {"\"loss\":0", "\"loss\":-0"},         // the integer 0
      {"\"loss\":0", "\"loss\":01"},         // no JSON
      {"\"loss\":0", "\"loss\":.5"},
      {"\"loss\":0", "\"loss\":1."},
      {"\"loss\":0", "\"loss\":nan"},
      {"\"loss\":0", "\"loss\":1e999"},
      {"\"examples\":0", "\"examples\":1.0"},  // no integer
      {"\"examples\":0", "\"examples\":9223372036854775808"},
      {"\"examples\":0", "\"examples\":-1"},
      {"\"captured_seconds\":0}", "\"captured_seconds\":0}}"}};
  for (const auto& [from, to] : unusual) {
    EXPECT_FALSE(Scanned<StepRecord>(absl::StrReplaceAll(line, {{from, to}}))
                     .has_value())
        << to;
  }
}

TEST(FieldScanner, AFieldThatANewerVersionAddedMayBeMissing) {
  const std::string line = ToJsonLine(ScheduleRecord());
  const std::string older = absl::StrReplaceAll(
      line, {{",\"exposed_transfer_seconds\":\"NaN\"", ""}});
  EXPECT_NE(older, line);
  EXPECT_EQ(Scanned<ScheduleRecord>(older), line);
  const std::string step = ToJsonLine(StepRecord());
  EXPECT_EQ(Scanned<StepRecord>(
                absl::StrReplaceAll(step, {{",\"captured_seconds\":0", ""}})),
            step);
}

TEST(FieldScanner, GivesUpAtTextThatIsNotPlain) {
  for (const char* path : {"a\"b", "a\\b", "\xc3\xa4", "\n"}) {
    CheckpointRecord record;
    record.path = path;
    EXPECT_FALSE(Scanned<CheckpointRecord>(ToJsonLine(record)).has_value());
    const auto parsed = ParseRecord(ToJsonLine(record));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(std::get<CheckpointRecord>(*parsed).path, path);
  }
}

}  // namespace
}  // namespace rankwise
