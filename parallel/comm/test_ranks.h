// For tests: ranks as threads over real Gloo.
#ifndef RANKWISE_PARALLEL_COMM_TEST_RANKS_H_
#define RANKWISE_PARALLEL_COMM_TEST_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/communicator.h"

namespace rankwise {

// Connects one of `world_size` ranks that meet through the file `store`.
std::unique_ptr<Communicator> ConnectRank(
    int rank, int world_size, const std::string& store,
    absl::Duration collective_timeout = absl::Seconds(60));

// Runs `body` once per rank, each on a thread with its own process group. An
// exception in any of them fails the test.
void OnRanks(int world_size, const std::function<void(Communicator&)>& body);

// The same with simulated hosts: rank i is on hosts[i].
void OnHosts(const std::vector<int>& hosts,
             const std::function<void(Communicator&)>& body);

// Returns the message of the exception that `action` throws, or "".
std::string ErrorOf(const std::function<void()>& action);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_TEST_RANKS_H_
