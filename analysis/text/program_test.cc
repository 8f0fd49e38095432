#include "analysis/text/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {
namespace {

TEST(RefuseArguments, NamesTheFirstAndAnExample) {
  std::string name = "program", first = "stray", second = "other";
  std::vector<char*> arguments = {name.data()};
  EXPECT_TRUE(RefuseArguments(arguments, "--records=DIR").ok());
  arguments.push_back(first.data());
  arguments.push_back(second.data());
  const absl::Status refused = RefuseArguments(arguments, "--records=DIR");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "unexpected argument \"stray\"; all options are flags, as in "
            "--records=DIR");
}

TEST(ParseMemory, KnowsBothKindsOfUnits) {
  EXPECT_EQ(*ParseMemory("f", "1GB"), 1000000000);
  EXPECT_EQ(*ParseMemory("f", "1.5GiB"), 1610612736);
  EXPECT_EQ(*ParseMemory("f", "512MB"), 512000000);
  EXPECT_EQ(*ParseMemory("f", "123456789"), 123456789);
  for (const char* text :
       {"", "GB", "0", "-1GB", "1 G", "nan", "1e40", "1gb"}) {
    EXPECT_THAT(std::string(ParseMemory("f", text).status().message()),
                testing::HasSubstr(std::string("--f=") + text +
                                   ": expected an amount"));
  }
  EXPECT_THAT(std::string(ParseMemory("f", "4GB\t").status().message()),
              testing::HasSubstr("--f=4GB\\t: expected an amount"));
}

TEST(Complain, BadUsageIsNotAFailure) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Complain("fit", absl::InvalidArgumentError("--a: no")), 2);
  EXPECT_EQ(Complain("fit", absl::NotFoundError("gone")), 1);
  EXPECT_EQ(Complain("fit", absl::InvalidArgumentError("broken"), 1), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "fit: --a: no\nfit: gone\nfit: broken\n");
}

}  // namespace
}  // namespace rankwise
