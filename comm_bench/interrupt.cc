#include "comm_bench/interrupt.h"

#include <signal.h>

namespace rankwise {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> caught{0};
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

void Note(int signal) {
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

}  // namespace rankwise
