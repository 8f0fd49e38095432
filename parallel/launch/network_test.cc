#include "parallel/launch/network.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

// The socket's TCP_USER_TIMEOUT in milliseconds; 0 for the system's default.
unsigned SilenceOf(int fd) {
  unsigned milliseconds = 0;
  socklen_t length = sizeof(milliseconds);
  EXPECT_EQ(
      getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &length), 0);
  return milliseconds;
}

TEST(NetworkTest, OnlyConnectionsToThePortEndInSilence) {
  const absl::StatusOr<Listener> listener = Listen(/*loopback_only=*/true, 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(
      connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  const int served = accept(listener->fd, nullptr, nullptr);

  EndSilentConnections(listener->port, absl::Seconds(7));
  EXPECT_EQ(SilenceOf(client), 7000u);
  EXPECT_EQ(SilenceOf(served), 0u);
  EXPECT_EQ(SilenceOf(listener->fd), 0u);
  for (const int fd : {client, served, listener->fd}) close(fd);
}

}  // namespace
}  // namespace rankwise
