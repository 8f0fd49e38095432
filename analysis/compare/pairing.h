// Which configuration of one set of records is which of the other.

#ifndef ANALYSIS_COMPARE_PAIRING_H_
#define ANALYSIS_COMPARE_PAIRING_H_

#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/compare/configuration.h"

namespace rankwise {

struct ConfigurationPair {
  const Configuration* a = nullptr;
  const Configuration* b = nullptr;
  // The ignored flags that differ, and those that only one of them has, as a
  // newer version adds flags; "" for none: "only B has --tied_head=true".
  std::string remark;
};

struct Pairing {
  std::vector<ConfigurationPair> pairs;  // in the order of `a`
  std::vector<const Configuration*> only_a, only_b;
};

// Pairs what has equal identities, and equal flags but for `ignored_flags` and
// those that one of the two does not have. Equal kinds of CPU come first, then
// equal flags; what fits several others beyond that is not paired.
Pairing PairConfigurations(absl::Span<const Configuration> a,
                           absl::Span<const Configuration> b,
                           const std::set<std::string>& ignored_flags);

// Of the pairs that could be made, the one that differs in the fewest things,
// in words: "ddp on 2 ranks, batch 32 is in both, but for --lr: 0.1 and 0.2".
// Neither may be empty. Where nothing differs, that it is there several times.
std::string NearestMiss(absl::Span<const Configuration> a,
                        absl::Span<const Configuration> b);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_PAIRING_H_
