#include "comm_bench/interrupt.h"

#include <signal.h>
#include <unistd.h>

namespace rankwise::comm_bench {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> caught{0};
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

// For an orderly end; a rank that is blocked will not come to it.
constexpr unsigned kSecondsToEnd = 5;

void Note(int signal) {
  ::alarm(kSecondsToEnd);  // ends the process
  caught = signal;
  interrupted = true;
}

}  // namespace

const std::atomic<bool>& CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM})
    sigaction(signal, &action, nullptr);
  return interrupted;
}

int InterruptSignal() { return caught; }

}  // namespace rankwise::comm_bench
