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

// The text of rank `from`. What a rank sends does not grow with the number of
// ranks.
std::string TextFrom(Control& control, const std::string& own, int from) {
  const bool tells = control.rank() == from;
  const double size =
      control.Max({tells ? static_cast<double>(own.size()) : 0})[0];
  return TextOf(control.Max(Letters(tells ? own : "", size)));
}

// Between names and values; in neither.
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
  const auto all = control.Gather({own.ok() ? 1.0 : 0.0});
  if (!own.ok()) return own;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == 1) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " could not ", what, " and says why"));
  }
  return absl::OkStatus();
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

absl::Status CheckSameFlags(Control& control, const Flags& flags) {
  const std::string own =
      absl::StrJoin(flags, kSeparator, absl::PairFormatter(kSeparator));
  const std::string first = TextFrom(control, own, 0);
  // The lowest rank that differs.
  const double lowest = control.Max(
      {own == first ? -control.world_size() : -control.rank() * 1.0})[0];
  const int rank = static_cast<int>(-lowest);
  if (rank == control.world_size()) return absl::OkStatus();
  return Compare(absl::StrSplit(first, kSeparator),
                 absl::StrSplit(TextFrom(control, own, rank), kSeparator),
                 rank);
}

}  // namespace rankwise::comm_bench
