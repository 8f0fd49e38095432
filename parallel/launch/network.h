// The few socket calls that rendezvous needs, with errors that separate the
// causes.
#ifndef RANKWISE_PARALLEL_LAUNCH_NETWORK_H_
#define RANKWISE_PARALLEL_LAUNCH_NETWORK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace rankwise {

// A listening TCP socket. Whoever receives it owns `fd`.
struct Listener {
  int fd = -1;
  int port = 0;
};

// Listens at `port` (0: any free one), at LoopbackAddress() (interfaces.h) only
// or on all interfaces. AlreadyExists when another process has the port;
// Unavailable where the loopback interface is down.
absl::StatusOr<Listener> Listen(bool loopback_only, int port);

// Blocks until something accepts connections at host:port. After `timeout`,
// Unavailable says whether the name does not resolve, the host cannot be
// reached or the port refuses. A name that does not resolve is given up on
// after 10 s.
absl::Status WaitForListener(const std::string& host, int port,
                             absl::Duration timeout);

// Lets the kernel end this process's TCP connections to `port` of any host when
// nothing that was sent there has been acknowledged for `patience`: the host is
// cut off or has no power. Without this a call that waits for an answer from it
// returns after a quarter of an hour, or never.
void EndSilentConnections(int port, absl::Duration patience);

// The address of this machine's interface through which `host` is reached.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// OK when `host` leads to this machine, or when that cannot be found out.
// NotFound when it does not resolve, or to addresses of which no network
// interface of this machine has one.
absl::Status CheckIsThisMachine(const std::string& host);

// This machine's.
std::string HostName();

// True for an address that only this machine can reach.
bool IsLoopbackAddress(const std::string& address);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_NETWORK_H_
