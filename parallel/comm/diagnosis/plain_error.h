// Plain messages and classification of exceptions.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_PLAIN_ERROR_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_PLAIN_ERROR_H_

#include <exception>
#include <string>

namespace rankwise {

// Returns the message of `error` on one line, without stack trace and
// "[file.cc:123]". NCCL's errors as thrown by c10d (C10D_NCCL_CHECK,
// NCCLUtils.hpp) become the failed operation, NCCL's last error, and a remedy:
// "NCCL 2.28.9: unhandled cuda error: Cuda failure 2 'out of memory'; the GPU
// has no memory left ...".
std::string PlainMessage(const std::exception& error);

// Whether c10d or its backends throw this exception for failed communication.
bool IsOfCommunication(const std::exception& error);

// Whether `error` reports a checked collective that differs between ranks.
bool IsMismatch(const std::exception& error);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_PLAIN_ERROR_H_
