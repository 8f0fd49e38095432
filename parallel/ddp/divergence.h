// Do all ranks still hold the same parameters?
//
// Data-parallel ranks start equal and apply equal updates; if they drift apart
// (a missed all-reduce, different seeds, faulty memory) training goes on and is
// wrong. Comparing 8 bytes per parameter finds it.
#ifndef RANKWISE_PARALLEL_DDP_DIVERGENCE_H_
#define RANKWISE_PARALLEL_DDP_DIVERGENCE_H_

#include "absl/status/status.h"

namespace torch::nn {
class Module;
}

namespace rankwise {

class Communicator;

// DataLossError naming the first parameter (in registration order) whose bits
// differ between ranks, and the ranks that differ from the majority (from rank
// 0 where there is none). The same answer on every rank. A collective call that
// reads every parameter once; on CUDA it copies them to the host.
absl::Status CheckDivergence(const torch::nn::Module& module,
                             Communicator& communicator);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_DIVERGENCE_H_
