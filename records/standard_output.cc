#include "records/standard_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "records/command_line.h"

namespace rankwise {
namespace {

// Opens closed streams read-only, so that writes to them still fail.
void OpenClosedStreams() {
  int fd = -1;
  do {
    fd = open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

// If the errno of the failure is lost, repeats a write, which fails with the
// same one.
std::string ErrorText() {
  const bool known = errno != 0 || write(STDOUT_FILENO, "\n", 1) < 0;
  return known ? std::strerror(errno) : "a write failed";
}

// Returns why output was lost, or "" if all of it was written.
std::string WhyIncomplete() {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout)
    return ErrorText();
  // Network file systems report a full disk only on close.
  const int copy = dup(STDOUT_FILENO);
  return copy >= 0 && close(copy) != 0 ? ErrorText() : "";
}

void Finish(int status, void*) {
  if (FinishStandardOutput(status) == status) return;
  std::fflush(nullptr);
  _exit(kFailed);
}

}  // namespace

int FinishStandardOutput(int exit_code) {
  const std::string reason = WhyIncomplete();
  if (reason.empty()) return exit_code;
  std::fprintf(stderr, "%s: the standard output could not be written: %s\n",
               program_invocation_short_name, reason.c_str());
  return exit_code == 0 ? kFailed : exit_code;
}

void CheckStandardOutputAtExit() {
  static const bool registered = [] {
    OpenClosedStreams();
    return on_exit(Finish, nullptr) == 0;
  }();
  static_cast<void>(registered);
}

}  // namespace rankwise
