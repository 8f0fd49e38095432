#include "parallel/launch/comm_flags.h"

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gtest/gtest.h"

ABSL_DECLARE_FLAG(std::string, file_store);

namespace rankwise {
namespace {

TEST(CommConfigFromFlagsTest, TheFileStoreMayBeAUrl) {
  const absl::FlagSaver saver;
  for (const std::string typed : {"/store", "file:///store"}) {
    absl::SetFlag(&FLAGS_file_store, typed);
    const absl::StatusOr<CommConfig> config = CommConfigFromFlags();
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->file_store, "/store");
  }
}

}  // namespace
}  // namespace rankwise
