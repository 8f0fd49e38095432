// For test_rank: what a backend's collectives and messages give. These throw
// what a call throws, and c10::Error when a result is wrong.
#ifndef RANKWISE_PARALLEL_COMM_TEST_COLLECTIVES_H_
#define RANKWISE_PARALLEL_COMM_TEST_COLLECTIVES_H_

#include <cstdint>

#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

// What comm_bench does not call: collectives in place and on lists, messages
// from any rank, futures, and refusals.
void CheckMpi(c10d::ProcessGroup& mpi);

// `calls` collectives and messages that are the same on all ranks, up to eight
// of them in flight.
void MixCalls(c10d::ProcessGroup& group, int calls, uint32_t seed);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_TEST_COLLECTIVES_H_
