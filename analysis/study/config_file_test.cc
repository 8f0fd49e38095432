#include "analysis/study/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Type = ConfigKey::Type;

const std::vector<ConfigKey>& Keys() {
  static const auto* keys = new std::vector<ConfigKey>{
      {"world_sizes", Type::kList}, {"repetitions", Type::kWhole},
      {"seed", Type::kWhole},       {"oversubscribe", Type::kBool},
      {"model", Type::kText},       {"trainer_flags", Type::kList, ' '}};
  return *keys;
}

std::string Refusal(const std::string& text) {
  return std::string(ParseConfig(text, "my.json", Keys()).status().message());
}

TEST(ParseConfig, ValuesAreThoseOfTheCommandLine) {
  const auto config = ParseConfig(R"({
    // Two sizes.
    "world_sizes": [1, 2],
    "repetitions": 7, /* odd */
    "oversubscribe": true,
    "model": "vit",
    "trainer_flags": ["--lr=0.1", "--depth=2"]
  })",
                                  "my.json", Keys());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->values,
              ElementsAre(Pair("model", "vit"), Pair("oversubscribe", "true"),
                          Pair("repetitions", "7"),
                          Pair("trainer_flags", "--lr=0.1 --depth=2"),
                          Pair("world_sizes", "1,2")));
  EXPECT_FALSE(config->origin.has_value());
}

TEST(ParseConfig, AListMayBeWrittenAsOnTheCommandLine) {
  EXPECT_EQ(ParseConfig(R"({"world_sizes": "1,2"})", "f", Keys())
                ->values.at("world_sizes"),
            "1,2");
}

TEST(ParseConfig, RefusalsNameTheLineOrTheKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\n\"model\": \"vit\"\n\"seed\": 1}", "my.json: parse error at line 3"},
      {"", "my.json: parse error at line 1"},
      {"[1]", "my.json: expected an object"},
      {R"({"ranks": 2})",
       "my.json: \"ranks\" is unknown; expected one of "
       "world_sizes, repetitions"},
      {R"({"seed": 1, "seed": 2})", "my.json: \"seed\" is given twice"},
      {R"({"seed": 1.5})", "\"seed\": 1.5 is not a whole number"},
      {R"({"seed": "1"})", "\"seed\": \"1\" is not a whole number"},
      {R"({"oversubscribe": 1})", "\"oversubscribe\": 1 is not true or false"},
      {R"({"model": 5})", "\"model\": 5 is not a text in quotes"},
      {R"({"world_sizes": 4})", "\"world_sizes\": 4 is not a list of texts"},
      {R"({"world_sizes": [1.5]})", "\"world_sizes\": [1.5] is not a list"},
      {R"({"study": 1})", "\"study\" is written by the study itself"},
      {"{\"model\": \"\xff\"}", "my.json: parse error at line 1"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(Refusal(text), HasSubstr(message)) << text;
  }
}

TEST(ParseConfig, SaysWhichFileCannotBeRead) {
  EXPECT_EQ(ReadConfigFile("/none.json", Keys()).status().message(),
            "/none.json: cannot be read");
  EXPECT_EQ(ReadConfigFile(testing::TempDir(), Keys()).status().message(),
            testing::TempDir() + ": cannot be read");
}

ConfigFile Example() {
  ConfigFile config;
  config.values = {{"world_sizes", "1,2"},
                   {"seed", "18446744073709551615"},
                   {"oversubscribe", "false"},
                   {"model", "a \"b\""},
                   {"trainer_flags", ""}};
  config.origin = {"1.3", "abc", "a CPU", 2, 1};
  return config;
}

TEST(ConfigToJson, ReadsBack) {
  const std::string json = ConfigToJson(Example(), Keys());
  EXPECT_THAT(json, HasSubstr("\n  \"world_sizes\": [1, 2],\n"));
  const auto back = ParseConfig(json, "f", Keys());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->values, Example().values);
  EXPECT_EQ(back->origin->source_hash, "abc");
  EXPECT_EQ(back->origin->cores, 2);
}

TEST(CheckWritable, NamesTheFlagThatIsNotUtf8) {
  EXPECT_TRUE(CheckWritable(Example()).ok());
  ConfigFile config = Example();
  config.values["model"] = "d\xe9";
  EXPECT_THAT(std::string(CheckWritable(config).message()),
              HasSubstr("--model: d\\xe9 is not UTF-8"));
}

TEST(Differences, NameFlagAndBothValues) {
  EXPECT_THAT(Differences({{"a", "1"}, {"b", "2"}, {"c", ""}},
                          {{"a", "1"}, {"b", "3"}, {"c", "x"}, {"new", "y"}}),
              ElementsAre("--b is 3, and was 2", "--c is x, and was empty"));
  EXPECT_THAT(Differences(Example().values, Example().values), IsEmpty());
}

TEST(CheckSameStudy, AnotherConfigurationIsAlwaysRefused) {
  ConfigFile now = Example();
  now.values["model"] = "gpt";
  for (bool force : {false, true}) {
    EXPECT_THAT(std::string(CheckSameStudy(Example(), now, force).message()),
                HasSubstr("another study than the one in the folder: --model "
                          "is gpt, and was a \"b\": leave these flags out"));
  }
}

TEST(CheckSameStudy, AnotherCodeVersionOrMachineNeedsForce) {
  ConfigFile now = Example();
  now.origin->source_hash = "def";
  now.origin->cores = 4;
  EXPECT_THAT(
      std::string(CheckSameStudy(Example(), now, false).message()),
      HasSubstr("the source's hash is def, and was abc; the number of cores is "
                "4, and was 2: start another study, or pass --force"));
  EXPECT_TRUE(CheckSameStudy(Example(), now, true).ok());
  EXPECT_TRUE(CheckSameStudy(Example(), Example(), false).ok());
}

TEST(CheckSameStudy, AnUnknownSourceIsNoOther) {
  ConfigFile now = Example();
  now.origin->source_hash = "";
  EXPECT_TRUE(CheckSameStudy(Example(), now, false).ok());
}

}  // namespace
}  // namespace rankwise
