#include "parallel/clock/steady_time.h"

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace rankwise {

bool RunWithin(absl::Duration patience, std::function<void()> action) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  std::thread([action = std::move(action), done] {
    try {
      action();
    } catch (const std::exception&) {
      // Whoever must know looks at what `action` has left.
    }
    done->set_value();
  }).detach();
  // What the clock can hold.
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);
  return ended.wait_for(absl::ToChronoMilliseconds(
             std::min(patience, kLongest))) == std::future_status::ready;
}

}  // namespace rankwise
