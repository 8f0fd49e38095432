// c10d's texts of NCCL's errors, in plain words.
#ifndef RANKWISE_PARALLEL_COMM_NCCL_ERROR_H_
#define RANKWISE_PARALLEL_COMM_NCCL_ERROR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace rankwise {

// "NCCL 2.28.9: unhandled cuda error: Cuda failure 2 'out of memory'; the GPU
// has no memory left for NCCL's buffers: ..." of what C10D_NCCL_CHECK throws
// (NCCLUtils.hpp): what failed, NCCL's last error, and what to do. Without the
// place in c10d's source, and with NCCL_DEBUG=INFO as the advice where there is
// no better. Other texts are given back.
std::string PlainNcclError(absl::string_view text);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_NCCL_ERROR_H_
