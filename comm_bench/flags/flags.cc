#include "comm_bench/flags/flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace rankwise::comm_bench {

std::vector<std::string> SplitNames(const std::string& list) {
  return absl::StrSplit(list, ',');
}

std::vector<double> ReadMicroseconds(const char* flag, const std::string& text,
                                     FlagChecks& checks, double unit) {
  std::vector<double> numbers;
  if (text.empty()) return numbers;
  for (const std::string& part : SplitNames(text)) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !(number >= 0 && number <= 1e9)) {
      checks.Complain(absl::StrCat("--", flag, "=", text, ": \"", part,
                                   "\" must be a number of microseconds "
                                   "between 0 and 1e9"));
    }
    numbers.push_back(number * unit);
  }
  return numbers;
}

}  // namespace rankwise::comm_bench
