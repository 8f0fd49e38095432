// What exceptions say in plain words, and which kind they are of.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_PLAIN_ERROR_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_PLAIN_ERROR_H_

#include <exception>
#include <string>

namespace rankwise {

// What `error` says, on one line, without stack trace and "[file.cc:123]".
// NCCL's errors as c10d throws them (C10D_NCCL_CHECK, NCCLUtils.hpp) become
// what failed, NCCL's last error, and what to do: "NCCL 2.28.9: unhandled cuda
// error: Cuda failure 2 'out of memory'; the GPU has no memory left ...".
std::string PlainMessage(const std::exception& error);

// True for what c10d and its backends throw when communication fails.
bool IsOfCommunication(const std::exception& error);

// True for the error of a checked collective that ranks called differently.
bool IsMismatch(const std::exception& error);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_PLAIN_ERROR_H_
