// Socket functions for the rendezvous, with errors that distinguish the causes.
#ifndef RANKWISE_PARALLEL_LAUNCH_NETWORK_H_
#define RANKWISE_PARALLEL_LAUNCH_NETWORK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace rankwise {

// A listening TCP socket. The receiver owns `fd`.
struct Listener {
  int fd = -1;
  int port = 0;
};

// Listens at `port` (0: any free one), only at LoopbackAddress() (interfaces.h)
// or on all interfaces. AlreadyExists if another process has the port;
// Unavailable if the loopback interface is down.
absl::StatusOr<Listener> Listen(bool loopback_only, int port);

// Blocks until host:port accepts a connection. After `timeout`, or after 10 s
// if the name does not resolve, returns Unavailable, whose message
// distinguishes an unresolved name, an unreachable host and a refused
// connection.
absl::Status WaitForListener(const std::string& host, int port,
                             absl::Duration timeout);

// Makes the kernel close this process's TCP connections to `port` of any host
// if sent data is not acknowledged for `patience`: the host is cut off or has
// no power. Otherwise a call that waits for its answer returns after a quarter
// of an hour, or never.
void EndSilentConnections(int port, absl::Duration patience);

// Returns the address of this machine's interface that leads to `host`.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// OK if `host` leads to this machine, or if that cannot be determined. NotFound
// if it does not resolve, or only to addresses that no network interface of
// this machine has.
absl::Status CheckIsThisMachine(const std::string& host);

// Returns this machine's host name.
std::string HostName();

// True for an address that only this machine can reach.
bool IsLoopbackAddress(const std::string& address);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_NETWORK_H_
