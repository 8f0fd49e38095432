#include "analysis/compare/pairing.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

using Values = std::map<std::string, std::string>;

enum class Missing { kDiffers, kFits };

// "NAME: VALUE and VALUE" for what is not equal in both.
std::vector<std::string> Differences(const Values& a, const Values& b,
                                     const char* prefix, Missing missing) {
  std::vector<std::string> result;
  Values both = a;
  both.insert(b.begin(), b.end());
  for (const auto& [name, ignored] : both) {
    const auto in_a = a.find(name), in_b = b.find(name);
    const bool one_sided = in_a == a.end() || in_b == b.end();
    if (one_sided && missing == Missing::kFits) continue;
    if (!one_sided && in_a->second == in_b->second) continue;
    const auto text = [](bool has, const auto& entry) {
      return has ? absl::StrCat("\"", entry->second, "\"") : "none";
    };
    result.push_back(absl::StrCat(prefix, name, ": ",
                                  text(in_a != a.end(), in_a), " and ",
                                  text(in_b != b.end(), in_b)));
  }
  return result;
}

Values Without(Values flags, const std::set<std::string>& ignored) {
  std::erase_if(flags, [&ignored](const auto& flag) {
    return ignored.count(flag.first) > 0;
  });
  return flags;
}

std::string OnlyIn(const char* side, const Values& has, const Values& other) {
  std::vector<std::string> flags;
  for (const auto& [name, value] : has) {
    if (other.count(name) == 0) {
      flags.push_back(absl::StrCat("--", name, "=", value));
    }
  }
  if (flags.empty()) return "";
  return absl::StrCat("only ", side, " has ", absl::StrJoin(flags, " "));
}

std::string Remark(const Configuration& a, const Configuration& b) {
  std::vector<std::string> remarks =
      Differences(a.flags, b.flags, "--", Missing::kFits);
  for (std::string remark :
       {OnlyIn("A", a.flags, b.flags), OnlyIn("B", b.flags, a.flags)}) {
    if (!remark.empty()) remarks.push_back(std::move(remark));
  }
  return absl::StrJoin(remarks, ", ");
}

class Pairer {
 public:
  Pairer(absl::Span<const Configuration> a, absl::Span<const Configuration> b,
         const std::set<std::string>& ignored)
      : a_(a), b_(b), ignored_(ignored), partner_(a.size(), kNone) {}

  Pairing Pair() {
    for (const bool same_cpus : {true, false}) {
      PairWhere(same_cpus, Missing::kDiffers);
      PairWhere(same_cpus, Missing::kFits);
    }
    Pairing result;
    for (size_t i = 0; i < a_.size(); ++i) {
      if (partner_[i] == kNone) {
        result.only_a.push_back(&a_[i]);
      } else {
        const Configuration& b = b_[partner_[i]];
        result.pairs.push_back({&a_[i], &b, Remark(a_[i], b)});
      }
    }
    for (size_t j = 0; j < b_.size(); ++j) {
      if (taken_.count(j) == 0) result.only_b.push_back(&b_[j]);
    }
    return result;
  }

 private:
  static constexpr size_t kNone = -1;

  bool Fit(size_t i, size_t j, bool same_cpus, Missing missing) const {
    if (a_[i].identity != b_[j].identity) return false;
    if (same_cpus && a_[i].cpus != b_[j].cpus) return false;
    return Differences(Without(a_[i].flags, ignored_),
                       Without(b_[j].flags, ignored_), "", missing)
        .empty();
  }

  // Pairs those of what is left that fit nothing else of what is left.
  void PairWhere(bool same_cpus, Missing missing) {
    std::vector<std::vector<size_t>> fits(a_.size());
    std::map<size_t, int> fitted;
    for (size_t i = 0; i < a_.size(); ++i) {
      if (partner_[i] != kNone) continue;
      for (size_t j = 0; j < b_.size(); ++j) {
        if (taken_.count(j) > 0 || !Fit(i, j, same_cpus, missing)) continue;
        fits[i].push_back(j);
        ++fitted[j];
      }
    }
    for (size_t i = 0; i < a_.size(); ++i) {
      if (fits[i].size() != 1 || fitted[fits[i][0]] != 1) continue;
      partner_[i] = fits[i][0];
      taken_.insert(fits[i][0]);
    }
  }

  const absl::Span<const Configuration> a_, b_;
  const std::set<std::string>& ignored_;
  std::vector<size_t> partner_;  // of each of a_
  std::set<size_t> taken_;       // of b_
};

}  // namespace

Pairing PairConfigurations(absl::Span<const Configuration> a,
                           absl::Span<const Configuration> b,
                           const std::set<std::string>& ignored_flags) {
  return Pairer(a, b, ignored_flags).Pair();
}

std::string NearestMiss(absl::Span<const Configuration> a,
                        absl::Span<const Configuration> b) {
  std::vector<std::string> fewest;
  const Configuration* nearest = nullptr;
  for (const Configuration& one : a) {
    for (const Configuration& other : b) {
      std::vector<std::string> differences =
          Differences(one.identity, other.identity, "", Missing::kDiffers);
      for (std::string& flag :
           Differences(one.flags, other.flags, "--", Missing::kFits)) {
        differences.push_back(std::move(flag));
      }
      if (nearest != nullptr && differences.size() >= fewest.size()) continue;
      nearest = &one;
      fewest = std::move(differences);
    }
  }
  if (fewest.empty()) {
    return absl::StrCat(nearest->name,
                        " is in both, but several times in one of them");
  }
  return absl::StrCat(nearest->name, " is in both, but for ",
                      absl::StrJoin(fewest, ", "));
}

}  // namespace rankwise
