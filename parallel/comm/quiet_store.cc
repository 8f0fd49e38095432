#include "parallel/comm/quiet_store.h"

#include <mutex>

#include "c10/util/Logging.h"

namespace rankwise {
namespace {

constexpr int kInfo = 0;
constexpr int kFatal = 3;

std::mutex& Mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}
int living = 0;       // guarded by Mutex()
int saved_level = 0;  // guarded by Mutex()

}  // namespace

QuietStore::QuietStore() {
  std::lock_guard<std::mutex> lock(Mutex());
  if (living++ > 0) return;
  saved_level = FLAGS_caffe2_log_level;
  if (saved_level > kInfo) FLAGS_caffe2_log_level = kFatal;
}

QuietStore::~QuietStore() {
  std::lock_guard<std::mutex> lock(Mutex());
  if (--living == 0) FLAGS_caffe2_log_level = saved_level;
}

}  // namespace rankwise
