// Ctrl-C asks for an orderly end.
#ifndef RANKWISE_COMM_BENCH_INTERRUPT_H_
#define RANKWISE_COMM_BENCH_INTERRUPT_H_

#include <atomic>

namespace rankwise::comm_bench {

// From now on the first SIGINT or SIGTERM only sets the returned flag, and ends
// the process 5 s later if that has not ended it; a second one does at once.
const std::atomic<bool>& CatchInterrupts();

// The signal that came, 0 if none.
int InterruptSignal();

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_INTERRUPT_H_
