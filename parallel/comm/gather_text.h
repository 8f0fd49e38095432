// Text from all ranks, on the first.
#ifndef RANKWISE_PARALLEL_COMM_GATHER_TEXT_H_
#define RANKWISE_PARALLEL_COMM_GATHER_TEXT_H_

#include <string>
#include <vector>

namespace rankwise {

class Communicator;

// Every rank's `text`, by rank, on rank 0; nothing on the others. Collective;
// blocks, over the CPU's backend also beside NCCL. Null, or the fake backend,
// whose other ranks say nothing: `text` alone. Throws what a failed message
// throws.
std::vector<std::string> GatherText(Communicator* comm,
                                    const std::string& text);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_GATHER_TEXT_H_
