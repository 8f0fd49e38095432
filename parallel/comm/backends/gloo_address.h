// At which addresses the ranks of a group reach each other over Gloo.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_GLOO_ADDRESS_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_GLOO_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/backends/backends.h"

namespace rankwise {

// Where a rank listens.
struct GlooAddress {
  int rank = 0;           // of the job
  std::string host;       // its name
  std::string network;    // NetworkIdentity()
  std::string interface;  // "eth0"; empty: the address is not this machine's
  std::string address;    // empty: the interface has none
  std::string others;     // "lo (127.0.0.1), eth0 (10.0.0.7)": all it has
};

// All of the group, by rank in it, once they are known to work together.
// Collective. A rank takes the interface that GLOO_SOCKET_IFNAME names, else
// the one that leads to MASTER_ADDR, or, where that is its own machine, to a
// rank of another one: there the name of the machine may mean the loopback
// interface, to which Debian's /etc/hosts points it. Throws what the store
// throws.
absl::StatusOr<std::vector<GlooAddress>> AgreeOnGlooAddresses(
    const BackendRequest& request);

// InvalidArgument for addresses that cannot work, with ranks, hosts and
// interfaces: none; the loopback of one of several machines; the same on two
// machines, as that of a bridge for containers is.
absl::Status CheckGlooAddresses(const std::vector<GlooAddress>& addresses);

// "rank 1 at 10.0.0.7 (eth0 of host1)".
std::string DescribeGlooAddress(const GlooAddress& address);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_GLOO_ADDRESS_H_
