// Checks of a backend's collectives and messages, for test_rank. They throw the
// exception of a failed call, and c10::Error for a wrong result.
#ifndef RANKWISE_PARALLEL_COMM_TEST_COLLECTIVES_H_
#define RANKWISE_PARALLEL_COMM_TEST_COLLECTIVES_H_

#include <cstdint>

#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

// Covers calls that comm_bench does not make: collectives in place and on
// lists, messages from any rank, futures, and refusals.
void CheckMpi(c10d::ProcessGroup& mpi);

// Makes `calls` collectives and messages, the same on all ranks, with up to
// eight in flight.
void MixCalls(c10d::ProcessGroup& group, int calls, uint32_t seed);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_TEST_COLLECTIVES_H_
