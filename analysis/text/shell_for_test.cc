#include "analysis/text/shell_for_test.h"

#include <sys/wait.h>

#include <cstddef>
#include <cstdio>

namespace rankwise {

Outcome RunShell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char chunk[1 << 16];
  while (const size_t count = std::fread(chunk, 1, sizeof(chunk), pipe))
    outcome.output.append(chunk, count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace rankwise
