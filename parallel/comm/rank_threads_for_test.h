// For tests: ranks as threads over the fake backend.
#ifndef RANKWISE_PARALLEL_COMM_RANK_THREADS_FOR_TEST_H_
#define RANKWISE_PARALLEL_COMM_RANK_THREADS_FOR_TEST_H_

#include <functional>

#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/control.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// One rank's view: a group with injected costs, and a control channel without
// costs.
struct FakeRank {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  Control& control;
};

// Runs `body` once per rank, each on a thread. An exception in any of them
// fails the test.
void OnFakeRanks(int world_size, const FakeBackendConfig& costs,
                 const std::function<void(FakeRank&)>& body);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_RANK_THREADS_FOR_TEST_H_
