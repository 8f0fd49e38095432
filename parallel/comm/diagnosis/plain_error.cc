#include "parallel/comm/diagnosis/plain_error.h"

#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "c10/util/Exception.h"
#include "gloo/common/error.h"
#include "gloo/common/logging.h"

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

std::string AdviceFor(absl::string_view text) {
  if (absl::StrContains(text, "Duplicate GPU")) {
    return "two ranks are on one GPU: start fewer ranks, or let each see its "
           "own (CUDA_VISIBLE_DEVICES)";
  }
  if (absl::StrContains(text, "out of memory")) {
    return "the GPU has no memory left for NCCL's buffers: use a smaller "
           "batch, or see in nvidia-smi which other processes use the GPU";
  }
  if (absl::StrContains(text, "ncclRemoteError")) {
    return "see what the other ranks printed last";
  }
  if (absl::StrContains(text, "ncclSystemError")) {
    return "if machines have several networks, name the interface in "
           "NCCL_SOCKET_IFNAME; set NCCL_DEBUG=INFO for details";
  }
  return "set NCCL_DEBUG=INFO for details";
}

// Extracts from the lines after the first NCCL's own message, which follows
// "Last error:", or else c10d's explanation, which follows "ncclRemoteError: ".
std::string Details(absl::string_view lines) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(lines, absl::MaxSplits("Last error:", 1));
  const absl::string_view own = absl::StripAsciiWhitespace(parts.second);
  if (!own.empty() && !absl::StrContains(own, "Unknown NCCL Error")) {
    return std::string(own);
  }
  absl::string_view meaning = absl::StripAsciiWhitespace(parts.first);
  const size_t colon = meaning.find(": ");
  if (colon != absl::string_view::npos) meaning.remove_prefix(colon + 2);
  return meaning.empty() ? "no details" : std::string(meaning);
}

// Returns other texts unchanged.
std::string PlainNcclError(const std::string& text) {
  static const std::regex& format = *new std::regex(
      "NCCL error(?:: | in: [^,\n]*, )"       // FILE:LINE
      "(.*?)(?: \\(run with NCCL_DEBUG.*?)?"  // the failed operation
      "(?:, NCCL version (.*))?");
  const std::string first_line = text.substr(0, text.find('\n'));
  std::smatch parts;
  if (!std::regex_match(first_line, parts, format)) return text;
  const std::string version = parts[2].matched ? " " + parts[2].str() : "";
  const std::string details = Details(text.substr(first_line.size()));
  return absl::StrCat("NCCL", version, ": ", parts[1].str(), ": ",
                      absl::StripSuffix(details, "."), "; ", AdviceFor(text));
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
  return absl::StrReplaceAll(PlainNcclError(std::string(text)), {{"\n", " "}});
}

bool IsOfCommunication(const std::exception& error) {
  return dynamic_cast<const c10::DistError*>(&error) != nullptr ||
         dynamic_cast<const gloo::Exception*>(&error) != nullptr ||
         dynamic_cast<const gloo::EnforceNotMet*>(&error) != nullptr;
}

// Matches the message: c10d's check (CollectiveFingerPrint in
// ProcessGroupWrapper.cpp) throws a plain c10::Error, as do the collectives
// that it calls next.
bool IsMismatch(const std::exception& error) {
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         absl::StrContains(error.what(),
                           "Detected mismatch between collectives");
}

}  // namespace rankwise
