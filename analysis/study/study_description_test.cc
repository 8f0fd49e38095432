#include "analysis/study/study_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StudyDescription Example() {
  return {{{"world_sizes", "1,2"},
           {"seed", "18446744073709551615"},
           {"oversubscribe", "false"},
           {"model", "d\xe9 \"b\"=c"},
           {"trainer_flags", ""}},
          {{"schema_version", "1.3"},
           {"source_hash", "abc"},
           {"cpu_model", "a CPU: fast"},
           {"cores", "2"},
           {"threads_per_rank", "1"}}};
}

std::string WriteExample(const std::string& text) {
  const std::string path = testing::TempDir() + "/my.flags";
  std::ofstream(path) << text;
  return path;
}

TEST(FlagfileText, ReadsBack) {
  const auto text = FlagfileText(Example());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\n--world_sizes=1,2\n"));
  const auto back = ReadFlagfile(WriteExample(*text));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->flags, Example().flags);
  EXPECT_EQ(back->origin, Example().origin);
}

TEST(FlagfileText, NamesTheFlagThatALineCannotHold) {
  StudyDescription study = Example();
  study.flags["model"] = "a\nb";
  EXPECT_THAT(std::string(FlagfileText(study).status().message()),
              HasSubstr("--model: its value holds a line break"));
}

TEST(ReadFlagfile, SaysWhatIsWrong) {
  EXPECT_EQ(ReadFlagfile("/none.flags").status().message(),
            "/none.flags: cannot be read");
  EXPECT_EQ(ReadFlagfile(testing::TempDir()).status().message(),
            testing::TempDir() + ": cannot be read");
  const std::string path = WriteExample("# Two sizes.\n\n--seed=1\nseed 2\n");
  EXPECT_EQ(ReadFlagfile(path).status().message(),
            path + ":4: expected --flag=value");
}

TEST(Differences, NameFlagAndBothValues) {
  EXPECT_THAT(Differences({{"a", "1"}, {"b", "2"}, {"c", ""}},
                          {{"a", "1"}, {"b", "3"}, {"c", "x"}, {"new", "y"}}),
              ElementsAre("--b is 3, and was 2", "--c is x, and was empty"));
  EXPECT_THAT(Differences(Example().flags, Example().flags), IsEmpty());
}

TEST(CheckSameStudy, AnotherConfigurationIsAlwaysRefused) {
  StudyDescription now = Example();
  now.flags["seed"] = "1";
  for (bool force : {false, true}) {
    EXPECT_THAT(std::string(CheckSameStudy(Example(), now, force).message()),
                HasSubstr("another study than the one in the folder: --seed is "
                          "1, and was 18446744073709551615: leave these flags "
                          "out"));
  }
}

TEST(CheckSameStudy, AnotherCodeVersionOrMachineNeedsForce) {
  StudyDescription now = Example();
  now.origin["source_hash"] = "def";
  now.origin["cores"] = "4";
  EXPECT_THAT(
      std::string(CheckSameStudy(Example(), now, false).message()),
      HasSubstr("the source's hash is def, and was abc; the number of cores is "
                "4, and was 2: start another study, or pass --force"));
  EXPECT_TRUE(CheckSameStudy(Example(), now, true).ok());
  EXPECT_TRUE(CheckSameStudy(Example(), Example(), false).ok());
}

TEST(CheckSameStudy, AnUnknownSourceIsNoOther) {
  StudyDescription now = Example();
  now.origin["source_hash"] = "";
  EXPECT_TRUE(CheckSameStudy(Example(), now, false).ok());
}

}  // namespace
}  // namespace rankwise
