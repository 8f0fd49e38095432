// The network interfaces of this machine, and whether two ranks share them.
#ifndef RANKWISE_PARALLEL_LAUNCH_INTERFACES_H_
#define RANKWISE_PARALLEL_LAUNCH_INTERFACES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

struct NetworkInterface {
  std::string name;     // "eth0"
  std::string address;  // "192.168.1.7"
};

// Returns the interfaces that are up, each once, with its first IPv4 address or
// else its first IPv6 address. Omits link-local IPv6 addresses, which are
// meaningless on other interfaces.
std::vector<NetworkInterface> NetworkInterfaces();

// Returns the interface that has `address`; its name is "" if none has.
NetworkInterface InterfaceWith(const std::string& address);

// Returns the address at which processes of this machine reach each other:
// "127.0.0.1", or "::1" on a machine with IPv6 only. Unavailable, with the fix,
// if no interface that is up has either: the kernel would let programs listen
// there but drop their packets.
absl::StatusOr<std::string> LoopbackAddress();

// Returns a text that is equal for processes that share their interfaces: those
// of one machine, unless a container gives them their own network.
std::string NetworkIdentity();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_INTERFACES_H_
