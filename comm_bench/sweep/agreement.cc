#include "comm_bench/sweep/agreement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rankwise::comm_bench {
namespace {

using Flags = std::map<std::string, std::string>;

// Each text with its length before it, character by character.
std::vector<double> Encode(const Flags& flags) {
  std::vector<double> codes;
  const auto append = [&codes](const std::string& text) {
    codes.push_back(static_cast<double>(text.size()));
    for (const unsigned char letter : text) codes.push_back(letter);
  };
  for (const auto& [name, value] : flags) {
    append(name);
    append(value);
  }
  return codes;
}

Flags Decode(const std::vector<double>& codes, size_t used) {
  size_t position = 0;
  const auto next = [&] {
    const size_t size = static_cast<size_t>(codes[position++]);
    const auto begin = codes.begin() + static_cast<std::ptrdiff_t>(position);
    position += size;
    return std::string(begin, begin + static_cast<std::ptrdiff_t>(size));
  };
  Flags flags;
  while (position < used) {
    std::string name = next();
    flags[std::move(name)] = next();
  }
  return flags;
}

std::string Show(const Flags& flags, const std::string& name) {
  const auto flag = flags.find(name);
  if (flag == flags.end()) return absl::StrCat("no --", name);
  return absl::StrCat("--", name, "=", flag->second);
}

absl::Status Compare(const Flags& first, const Flags& other, int rank) {
  if (first == other) return absl::OkStatus();
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

absl::Status CheckSameFlags(Control& control, const Flags& flags) {
  std::vector<double> codes = Encode(flags);
  std::vector<size_t> used;
  for (const auto& size : control.Gather({static_cast<double>(codes.size())}))
    used.push_back(static_cast<size_t>(size[0]));
  codes.resize(*std::max_element(used.begin(), used.end()));
  const std::vector<std::vector<double>> all = control.Gather(codes);
  const Flags first = Decode(all[0], used[0]);
  for (int rank = 1; rank < control.world_size(); ++rank) {
    absl::Status same = Compare(first, Decode(all[rank], used[rank]), rank);
    if (!same.ok()) return same;
  }
  return absl::OkStatus();
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

}  // namespace rankwise::comm_bench
