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

// Those that are up, each once: with its first IPv4 address, or else its first
// IPv6 address. Link-local IPv6 addresses are left out, since they mean nothing
// on another interface.
std::vector<NetworkInterface> NetworkInterfaces();

// The interface that has `address`; without a name where none has.
NetworkInterface InterfaceWith(const std::string& address);

// The address at which processes of this machine reach each other: "127.0.0.1",
// or "::1" on a machine with IPv6 only. Unavailable, with the fix, if no
// interface that is up has either: the kernel would let programs listen there
// but drop their packets.
absl::StatusOr<std::string> LoopbackAddress();

// Equal for processes that share their interfaces: those of one machine, unless
// a container gives them a network of their own.
std::string NetworkIdentity();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_INTERFACES_H_
