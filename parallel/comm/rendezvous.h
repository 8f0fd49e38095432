// How ranks meet: their shared store and the roll call in it.
#ifndef RANKWISE_PARALLEL_COMM_RENDEZVOUS_H_
#define RANKWISE_PARALLEL_COMM_RENDEZVOUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/launch/rank_env.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

struct RendezvousConfig {
  // Limit for the store to appear and all ranks to arrive, together.
  absl::Duration timeout = absl::Seconds(60);
  // Path on a file system that all ranks see. If empty, ranks meet in a TCP
  // store at MASTER_ADDR:MASTER_PORT.
  std::string file_store;
  // Calls that wait for the store throw once its host has acknowledged no data
  // for this long.
  absl::Duration silence = absl::Minutes(5);
};

// A connection to the job's part of a store.
struct StoreConnection {
  c10::intrusive_ptr<c10d::Store> store;
  // A second connection, so that a blocked thread does not delay others.
  c10::intrusive_ptr<c10d::Store> second_store;
  // Whether this process serves the store to the other ranks.
  bool is_server = false;
};

// Connects to the store (rank 0 serves it, unless it is external), announces
// this rank and blocks until all ranks have done so. A process without
// MASTER_ADDR serves its own store on a free loopback port.
//
// Unavailable: MASTER_ADDR does not resolve, cannot be reached or refuses, or
// the store has stopped answering. AlreadyExists: the port is taken, a second
// process claims the same rank, or the file is left over from an earlier job.
// DeadlineExceeded: ranks did not arrive (the error names them and, on rank 0,
// a MASTER_ADDR that is not this machine's), or another program listens at
// MASTER_PORT. InvalidArgument: ranks disagree about the world size.
absl::StatusOr<StoreConnection> Rendezvous(const RankEnv& env,
                                           const RendezvousConfig& config);

// A store that a launcher serves to its ranks on a free loopback port.
struct HostedStore {
  c10::intrusive_ptr<c10d::Store> store;  // the job's part, as in Rendezvous
  std::string address;                    // LoopbackAddress()
  int port = 0;
};
// `restart`: RankEnv::restart_count of the ranks that will use the store.
absl::StatusOr<HostedStore> HostStore(int restart = 0);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_RENDEZVOUS_H_
