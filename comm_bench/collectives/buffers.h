// How the entries allocate and divide their buffers.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_BUFFERS_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

// `count` elements of the call's type on its device, not set.
at::Tensor NewBuffer(const Call& call, int64_t count);

// Part `index` of `parts` equal ones: a view.
at::Tensor PartOf(const at::Tensor& buffer, int index, int parts);
// All of them.
std::vector<at::Tensor> EqualParts(const at::Tensor& buffer, int parts);

// The buffers of a collective whose input and output are as large as the row,
// and one tensor in place. The parts are the whole tensors.
Buffers WholeBuffers(const Call& call);

// The two sides of a collective between a root and all: on the root, the row's
// whole buffer with a view of each rank's part; on every rank its own part,
// which in place is the root's view of it.
struct RootedBuffers {
  at::Tensor whole;  // not defined but on the root
  std::vector<at::Tensor> parts;
  at::Tensor own;
};
RootedBuffers MakeRootedBuffers(const Call& call);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_BUFFERS_H_
