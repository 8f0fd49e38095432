#include "tests/fuzz/parser.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "absl/strings/str_cat.h"

namespace rankwise::fuzz {
namespace {

constexpr size_t kLongestMessage = 10'000;

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
}

}  // namespace

const std::vector<Parser>& AllParsers() {
  static const auto* const all = [] {
    auto* parsers = new std::vector<Parser>;
    for (const auto& some : {RecordParsers(), TextParsers(), TensorParsers()})
      parsers->insert(parsers->end(), some.begin(), some.end());
    return parsers;
  }();
  return *all;
}

std::string MessageFault(const Parser& parser, const absl::Status& refused) {
  const std::string message(refused.message());
  if (message.size() > kLongestMessage)
    return absl::StrCat("a message of ", message.size(), " bytes");
  if (std::any_of(message.begin(), message.end(), IsControl))
    return "control characters in the message";
  if (!std::regex_search(message, std::regex(parser.place)))
    return "the message names no place";
  return "";
}

bool IsPrintable(absl::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return IsControl(c) && c != '\n'; });
}

void WriteFile(const std::string& path, absl::string_view contents) {
  std::ofstream(path, std::ios::binary)
      .write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace rankwise::fuzz
