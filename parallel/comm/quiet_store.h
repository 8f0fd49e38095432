// Keeps c10d's store from printing warnings and stack traces of its own.
#ifndef RANKWISE_PARALLEL_COMM_QUIET_STORE_H_
#define RANKWISE_PARALLEL_COMM_QUIET_STORE_H_

namespace rankwise {

// While one lives, c10's log is silent below fatal errors: what goes wrong in a
// store comes back as an exception, and is told once, in our words. A user who
// has asked for more (TORCH_CPP_LOG_LEVEL=INFO) is not deprived of it.
class QuietStore {
 public:
  QuietStore();
  ~QuietStore();
  QuietStore(const QuietStore&) = delete;
  QuietStore& operator=(const QuietStore&) = delete;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_QUIET_STORE_H_
