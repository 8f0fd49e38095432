// Abseil's command line with this repository's exit codes.
#ifndef RANKWISE_PARALLEL_COMM_PARSE_FLAGS_H_
#define RANKWISE_PARALLEL_COMM_PARSE_FLAGS_H_

#include <vector>

namespace rankwise {

// absl::ParseCommandLine, which ends the program with 1 where a flag is unknown
// or its value cannot be read, and after --help, too: here with 2, as for any
// bad usage, and with 0. What is printed is Abseil's. Call it once, from main()
// and before any thread is started.
std::vector<char*> ParseFlags(int argc, char** argv);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_PARSE_FLAGS_H_
