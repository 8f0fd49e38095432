#include "parallel/launch/interfaces.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::Not;

TEST(InterfacesTest, TheLoopbackIsThereOnceWithItsFirstAddress) {
  const auto interfaces = NetworkInterfaces();
  int loopbacks = 0;
  for (const NetworkInterface& each : interfaces) {
    if (each.name != "lo") continue;
    ++loopbacks;
    EXPECT_EQ(each.address, "127.0.0.1");
  }
  EXPECT_EQ(loopbacks, 1);
  EXPECT_THAT(interfaces, Not(Contains(Field(&NetworkInterface::address, ""))));
}

TEST(InterfacesTest, AnAddressHasAnInterfaceOrNone) {
  EXPECT_EQ(InterfaceWith("127.0.0.1").name, "lo");
  EXPECT_EQ(InterfaceWith("192.0.2.77").name, "");  // reserved by RFC 5737
}

TEST(InterfacesTest, ThisProcessSharesItsOwnInterfaces) {
  EXPECT_NE(NetworkIdentity(), "");
  EXPECT_EQ(NetworkIdentity(), NetworkIdentity());
}

}  // namespace
}  // namespace rankwise
