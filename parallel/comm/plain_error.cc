#include "parallel/comm/plain_error.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "c10/util/Exception.h"
#include "gloo/common/error.h"
#include "gloo/common/logging.h"
#include "parallel/comm/nccl_error.h"

namespace rankwise {
namespace {

// "[/build/gloo/pair.cc:537] text" -> "text".
absl::string_view WithoutLocation(absl::string_view text) {
  if (text.empty() || text[0] != '[') return text;
  const size_t close = text.find(']');
  if (close == absl::string_view::npos) return text;
  const absl::string_view location = text.substr(0, close);
  const bool is_source = location.find(".cc:") != absl::string_view::npos ||
                         location.find(".cpp:") != absl::string_view::npos ||
                         location.find(".h:") != absl::string_view::npos;
  return is_source ? absl::StripLeadingAsciiWhitespace(text.substr(close + 1))
                   : text;
}

}  // namespace

std::string PlainMessage(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  absl::string_view text = torch_error != nullptr
                               ? torch_error->what_without_backtrace()
                               : error.what();
  for (const char* trace : {"\nException raised from", "\nC++ CapturedTrace",
                            "Exception raised from", "\nframe #0"}) {
    text = text.substr(0, text.find(trace));
  }
  text = WithoutLocation(absl::StripAsciiWhitespace(text));
  return absl::StrReplaceAll(PlainNcclError(text), {{"\n", " "}});
}

bool IsOfCommunication(const std::exception& error) {
  return dynamic_cast<const c10::DistError*>(&error) != nullptr ||
         dynamic_cast<const gloo::Exception*>(&error) != nullptr ||
         dynamic_cast<const gloo::EnforceNotMet*>(&error) != nullptr;
}

// By its words: c10d's check (CollectiveFingerPrint in ProcessGroupWrapper.cpp)
// throws a plain c10::Error, as do the collectives that it calls next.
bool IsMismatch(const std::exception& error) {
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         absl::StrContains(error.what(),
                           "Detected mismatch between collectives");
}

}  // namespace rankwise
