#include "comm_bench/nccl/nccl_log.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rankwise::comm_bench {
namespace {

using Words = std::vector<absl::string_view>;

constexpr absl::string_view kMark = " NCCL INFO ";

// The word after `name`, "" without.
std::string WordAfter(const Words& words, absl::string_view name) {
  const auto found = std::find(words.begin(), words.end(), name);
  if (found == words.end() || found + 1 == words.end()) return "";
  return std::string(found[1]);
}

std::optional<NcclChoice> ParseLine(absl::string_view line) {
  const size_t mark = line.find(kMark);
  if (mark == absl::string_view::npos) return std::nullopt;
  const absl::string_view message = line.substr(mark + kMark.size());
  const size_t arrow = message.find(" Bytes -> ");
  if (arrow == absl::string_view::npos) return std::nullopt;
  // "AllReduce: 8" or "AllReduce [Symmetric]: 8"
  const Words what =
      absl::StrSplit(message.substr(0, arrow), ' ', absl::SkipEmpty());
  const Words how =
      absl::StrSplit(message.substr(arrow), ' ', absl::SkipEmpty());
  NcclChoice choice;
  if (what.size() < 2 || !absl::SimpleAtoi(what.back(), &choice.bytes)) {
    return std::nullopt;
  }
  choice.call = std::string(absl::StripSuffix(what[0], ":"));
  choice.algorithm = WordAfter(how, "Algo");
  choice.protocol = WordAfter(how, "proto");
  if (choice.algorithm.empty()) {
    choice.algorithm = "SYMMETRIC";
    choice.protocol = WordAfter(how, "Kernel");
  }
  if (choice.protocol.empty()) return std::nullopt;
  return choice;
}

void AddOnce(const std::string& name, std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(name);
  }
}

}  // namespace

std::vector<NcclChoice> ParseNcclLog(absl::string_view log) {
  std::vector<NcclChoice> choices;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (const auto choice = ParseLine(line)) choices.push_back(*choice);
  }
  return choices;
}

ChosenNames NamesOf(const std::vector<NcclChoice>& choices) {
  std::vector<std::string> algorithms, protocols;
  for (const NcclChoice& choice : choices) {
    AddOnce(choice.algorithm, algorithms);
    AddOnce(choice.protocol, protocols);
  }
  return {absl::StrJoin(algorithms, ","), absl::StrJoin(protocols, ",")};
}

}  // namespace rankwise::comm_bench
