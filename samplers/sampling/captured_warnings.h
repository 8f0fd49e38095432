#ifndef RANKWISE_SAMPLERS_SAMPLING_CAPTURED_WARNINGS_H_
#define RANKWISE_SAMPLERS_SAMPLING_CAPTURED_WARNINGS_H_

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace rankwise {

// Collects this thread's c10 warnings while it lives, instead of their being
// printed.
class CapturedWarnings {
 public:
  const std::vector<std::string>& messages() const { return handler_.messages; }

 private:
  struct Handler : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      messages.push_back(warning.msg());
    }
    std::vector<std::string> messages;
  };

  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_CAPTURED_WARNINGS_H_
