// Addresses at which the ranks of a group reach each other over Gloo.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_GLOO_ADDRESS_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_GLOO_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/backends/backends.h"

namespace rankwise {

// The address at which a rank listens.
struct GlooAddress {
  int rank = 0;           // of the job
  std::string host;       // host name
  std::string network;    // NetworkIdentity()
  std::string interface;  // "eth0"; "" if the address is not this machine's
  std::string address;    // "" if the interface has none
  std::string others;     // all of the host: "lo (127.0.0.1), eth0 (10.0.0.7)"
};

// Returns the addresses of the group, by rank in it, once they are known to
// work together. Collective. A rank uses the interface that GLOO_SOCKET_IFNAME
// names, else the one that leads to MASTER_ADDR or, if that is its own machine,
// to a rank on another one: there the machine's name may resolve to the
// loopback interface, as in Debian's /etc/hosts. Rethrows the store's
// exceptions.
absl::StatusOr<std::vector<GlooAddress>> AgreeOnGlooAddresses(
    const BackendRequest& request);

// InvalidArgument, with ranks, hosts and interfaces, for addresses that cannot
// work: a missing one; the loopback interface in a job on several machines; the
// same address on two machines, such as that of a container bridge.
absl::Status CheckGlooAddresses(const std::vector<GlooAddress>& addresses);

// "rank 1 at 10.0.0.7 (eth0 of host1)".
std::string DescribeGlooAddress(const GlooAddress& address);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_GLOO_ADDRESS_H_
