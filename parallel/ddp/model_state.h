// The model tensors that data parallelism manages: their enumeration, their
// initial broadcast, and the check that they stay equal on all ranks.
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
  bool sparse_gradient = false;  // true for an Embedding with sparse(true)
};

// Returns all parameters or all buffers, a module's own before its children's,
// in registration order, as Python does. A tensor registered twice appears
// once, under its first name.
std::vector<NamedTensor> ModelParameters(const torch::nn::Module& module);
std::vector<NamedTensor> ModelBuffers(const torch::nn::Module& module);

// Overwrites every rank's tensors with those of the group's first rank, in
// coalesced pieces. A collective call of the group; does nothing without a
// process group. Throws c10::Error.
void BroadcastFromFirst(const std::vector<NamedTensor>& tensors,
                        const Group& group);
// Returns the time for which the current stream was blocked.
PendingDuration BroadcastFromFirst(const std::vector<torch::Tensor>& tensors,
                                   const Group& group);

// Verifies that all ranks of the group have the same model, before any other
// exchange: a mismatch would otherwise hang or corrupt results silently.
// FailedPrecondition, the same on every rank, names the first parameter or
// buffer whose name, shape, dtype, memory layout or requires_grad differs from
// the first rank's, or that one of the two lacks. A collective call: one
// exchange of 16 bytes if the models are equal. Messages use ranks in the job.
absl::Status VerifyModel(const torch::nn::Module& module, const Group& group);

// Checks that all ranks of the group still hold the same parameters. Ranks
// start equal and apply equal updates; if they drift apart (a missed
// all-reduce, different seeds, faulty memory), training continues silently with
// wrong results. Compares 8 bytes per parameter. DataLossError names the first
// parameter (in registration order) whose bits differ between ranks, and the
// ranks that differ from the majority (from the first rank if there is none);
// it is the same on every rank. A collective call that reads every parameter
// once; on CUDA it copies them to the host.
absl::Status CheckDivergence(const torch::nn::Module& module,
                             const Group& group);

// Return 64-bit fingerprints, equal for equal bytes in processes of one
// program. They detect accidents, not attacks. A tensor's fingerprint covers
// its elements' bits in row-major order, independent of the memory layout: it
// distinguishes 0.0 from -0.0 and one NaN from another. May copy to the host.
uint64_t FingerprintBytes(const void* data, size_t size);
uint64_t FingerprintTensor(const torch::Tensor& tensor);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_MODEL_STATE_H_
