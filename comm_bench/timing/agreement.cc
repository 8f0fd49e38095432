#include "comm_bench/timing/agreement.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rankwise::comm_bench {
namespace {

using Flags = std::map<std::string, std::string>;

std::vector<double> Letters(const std::string& text, size_t size) {
  std::vector<double> letters(size, 0);
  std::transform(text.begin(), text.end(), letters.begin(),
                 [](unsigned char letter) { return letter; });
  return letters;
}

std::string TextOf(absl::Span<const double> letters) {
  std::string text;
  for (const double letter : letters) text += static_cast<char>(letter);
  return text;
}

// Separates names and values; contained in neither.
constexpr char kSeparator[] = "\x1f";

std::string Show(const Flags& flags, const std::string& name) {
  const auto flag = flags.find(name);
  if (flag == flags.end()) return absl::StrCat("no --", name);
  return absl::StrCat("--", name, "=", flag->second);
}

absl::Status Compare(const Flags& first, const Flags& other, int rank) {
  Flags all = first;
  all.insert(other.begin(), other.end());
  for (const auto& [name, value] : all) {
    const std::string here = Show(other, name), there = Show(first, name);
    if (here == there) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks disagree: rank ", rank, " has ", here, " but rank 0 has ", there,
        "; give every rank the same flags"));
  }
  return absl::OkStatus();
}

}  // namespace

bool AnyStopped(Control& control, const std::atomic<bool>* stop) {
  return control.Max({stop != nullptr && *stop ? 1.0 : 0.0})[0] != 0;
}

absl::Status AllOk(Control& control, const absl::Status& own,
                   const std::string& what) {
  const int failed = FirstRankWith(control, !own.ok());
  if (!own.ok() || failed < 0) return own;
  return absl::UnavailableError(
      absl::StrCat("rank ", failed, " could not ", what,
                   "; its own error gives the reason"));
}

int FirstRankWith(Control& control, bool own) {
  const double ranks_left = control.world_size() - control.rank();
  const double most = control.Max({own ? ranks_left : 0.0})[0];
  return most == 0 ? -1 : control.world_size() - static_cast<int>(most);
}

std::vector<std::string> GatherTexts(Control& control, const std::string& own) {
  const auto sizes = control.Gather({static_cast<double>(own.size())});
  const double largest = (*std::max_element(sizes.begin(), sizes.end()))[0];
  const auto letters = control.Gather(Letters(own, largest));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    texts.push_back(
        TextOf(absl::MakeConstSpan(letters[rank]).first(sizes[rank][0])));
  }
  return texts;
}

std::string TextFrom(Control& control, const std::string& own, int from) {
  const bool tells = control.rank() == from;
  const double size =
      control.Max({tells ? static_cast<double>(own.size()) : 0})[0];
  return TextOf(control.Max(Letters(tells ? own : "", size)));
}

absl::Status CheckSameFlags(Control& control, const Flags& flags) {
  const std::string own =
      absl::StrJoin(flags, kSeparator, absl::PairFormatter(kSeparator));
  const std::string first = TextFrom(control, own, 0);
  const int rank = FirstRankWith(control, own != first);
  if (rank < 0) return absl::OkStatus();
  return Compare(absl::StrSplit(first, kSeparator),
                 absl::StrSplit(TextFrom(control, own, rank), kSeparator),
                 rank);
}

}  // namespace rankwise::comm_bench
