#include "samplers/sampling/epoch_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samplers/sampling/captured_warnings.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(EpochGuardTest, IsQuietWhenEveryEpochIsChosen) {
  CapturedWarnings warnings;
  EpochGuard guard("ASampler");
  guard.EpochUsed();  // the first may go without
  for (int epoch = 0; epoch < 3; ++epoch) {
    guard.EpochChosen();
    guard.EpochUsed();
  }
  EXPECT_THAT(warnings.messages(), IsEmpty());
}

TEST(EpochGuardTest, WarnsOnceWhenAnEpochIsNotChosen) {
  CapturedWarnings warnings;
  EpochGuard guard("ASampler");
  for (int epoch = 0; epoch < 4; ++epoch) guard.EpochUsed();
  EXPECT_THAT(warnings.messages(),
              ElementsAre(AllOf(HasSubstr("ASampler"), HasSubstr("set_epoch"),
                                HasSubstr("same order again"))));
}

}  // namespace
}  // namespace rankwise
