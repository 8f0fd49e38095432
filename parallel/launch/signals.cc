#include "parallel/launch/signals.h"

#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

constexpr int64_t kSameSignalMs = 1000;

// Signal stack of the main thread, to which signals of the process are
// delivered. A separate stack, since oneDNN's fp32 products point the stack
// pointer into the heap, where a handler would overwrite the data below it
// (jit_avx512_common_gemm_f32.cpp).
constexpr size_t kStackBytes = 64 << 10;
alignas(16) char handlers_stack[kStackBytes];

static_assert(std::atomic<int64_t>::is_always_lock_free);
std::atomic<int64_t> caught_ms = 0;  // 0 if none

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// Calls async-signal-safe functions only.
void Catch(int signal) {
  int64_t none = 0;
  const int64_t now_ms = NowMs();
  if (caught_ms.compare_exchange_strong(none, now_ms)) return;
  if (now_ms - none < kSameSignalMs) return;
  ::signal(signal, SIG_DFL);
  raise(signal);
}

bool IsIgnored(int signal) {
  struct sigaction now = {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

bool IsPreemption(int signal) { return signal == SIGTERM || signal == SIGUSR1; }

void CatchPreemption() {
  stack_t stack = {};
  stack.ss_sp = handlers_stack;
  stack.ss_size = sizeof(handlers_stack);
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = Catch;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  for (const int signal : {SIGTERM, SIGUSR1})
    sigaction(signal, &action, nullptr);
}

bool Preempted() { return caught_ms != 0; }

LauncherSignals::~LauncherSignals() {
  if (fd_ < 0) return;
  close(fd_);
  sigprocmask(SIG_SETMASK, &previous_mask_, nullptr);
}

absl::Status LauncherSignals::Block(bool usr1) {
  // SIGCHLD may be inherited as ignored: the kernel would then reap ranks
  // itself, and waitid would never report their end.
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGTERM, SIGCHLD}) sigaddset(&handled, signal);
  // A blocked signal is queued even if it is ignored.
  for (const int signal : {SIGINT, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&handled, signal);
  }
  if (usr1) sigaddset(&handled, SIGUSR1);
  sigprocmask(SIG_BLOCK, &handled, &previous_mask_);
  fd_ = signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) {
    return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace rankwise
