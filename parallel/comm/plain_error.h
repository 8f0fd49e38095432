// Exceptions' texts without stack traces and source locations.
#ifndef RANKWISE_PARALLEL_COMM_PLAIN_ERROR_H_
#define RANKWISE_PARALLEL_COMM_PLAIN_ERROR_H_

#include <exception>
#include <string>

namespace rankwise {

// What `error` says, on one line: no C++ stack trace, no "[file.cc:123]".
std::string PlainMessage(const std::exception& error);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_PLAIN_ERROR_H_
