// The tensors of a model that data parallelism looks after: which they are, how
// ranks start with the same ones, and whether they still are the same.
#ifndef RANKWISE_PARALLEL_DDP_MODEL_STATE_H_
#define RANKWISE_PARALLEL_DDP_MODEL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "parallel/device/device_event.h"
#include "torch/types.h"

namespace torch::nn {
class Module;
}

namespace rankwise {

class Group;

struct NamedTensor {
  std::string name;  // "features.0.weight"
  torch::Tensor tensor;
  bool sparse_gradient = false;  // an Embedding's with sparse(true)
};

// All parameters respectively buffers, a module's own before its children's, in
// the order of registration: Python's order. A tensor registered twice appears
// once, under its first name.
std::vector<NamedTensor> ModelParameters(const torch::nn::Module& module);
std::vector<NamedTensor> ModelBuffers(const torch::nn::Module& module);

// Overwrites every rank's tensors with those of the group's first rank, many at
// a time. A collective call of the group; nothing without a process group.
// Throws c10::Error.
void BroadcastFromFirst(const std::vector<NamedTensor>& tensors,
                        const Group& group);
// Returns how long the current stream was blocked.
PendingDuration BroadcastFromFirst(const std::vector<torch::Tensor>& tensors,
                                   const Group& group);

// Do all ranks of the group have the same model? Checked before anything is
// exchanged, since afterwards the answer is a hang or silent nonsense.
// FailedPrecondition, the same on every rank, names the first parameter or
// buffer whose name, shape, dtype, memory layout or need for a gradient is not
// the first rank's, or which one of the two lacks. A collective call: one
// exchange of 16 bytes when all is well. Ranks are called by their number in
// the job.
absl::Status VerifyModel(const torch::nn::Module& module, const Group& group);

// Do all ranks of the group still hold the same parameters? They start equal
// and apply equal updates; if they drift apart (a missed all-reduce, different
// seeds, faulty memory) training goes on and is wrong. Comparing 8 bytes per
// parameter finds it.
// DataLossError naming the first parameter (in registration order) whose bits
// differ between ranks, and the ranks that differ from the majority (from the
// first rank where there is none). The same answer on every rank. A collective
// call that reads every parameter once; on CUDA it copies them to the host.
absl::Status CheckDivergence(const torch::nn::Module& module,
                             const Group& group);

// 64-bit fingerprints, equal for equal bytes in processes of one program. For
// finding accidents, not attacks. A tensor's is of its elements'
// bits in row-major order, whatever the memory layout: it separates 0.0 from
// -0.0 and one NaN from another. Copies to the host if need be.
uint64_t FingerprintBytes(const void* data, size_t size);
uint64_t FingerprintTensor(const torch::Tensor& tensor);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_MODEL_STATE_H_
