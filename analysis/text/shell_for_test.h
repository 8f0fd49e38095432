// Runs the programs of analysis/ for their tests.
#ifndef RANKWISE_ANALYSIS_TEXT_SHELL_FOR_TEST_H_
#define RANKWISE_ANALYSIS_TEXT_SHELL_FOR_TEST_H_

#include <string>

namespace rankwise {

struct Outcome {
  int exit_code = -1;  // -1 if ended by a signal or not started
  std::string output;  // stdout; with "2>&1" in the command, stderr too
};

// Runs `command` by /bin/sh and waits for it.
Outcome RunShell(const std::string& command);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_SHELL_FOR_TEST_H_
