#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "analysis/ledger/ledger.h"

namespace rankwise {

Ledger MeanLedger(absl::Span<const Ledger> ledgers) {
  assert(!ledgers.empty());
  const double share = 1 / static_cast<double>(ledgers.size());
  // Repetitions of one cell have the same ranks, stages and axes.
  Ledger mean;
  std::map<std::pair<int64_t, int64_t>, size_t> places;
  std::map<std::string, size_t> axes;
  for (const Ledger& ledger : ledgers) {
    mean.critical.Add(ledger.critical, share);
    for (const auto figure :
         {&Ledger::imbalance_seconds, &Ledger::noise_seconds,
          &Ledger::optimizer_seconds, &Ledger::captured_seconds,
          &Ledger::median_residual_share}) {
      mean.*figure += share * ledger.*figure;
    }
    mean.separates_bubble &= ledger.separates_bubble;
    for (const auto& [part, seconds] : ledger.first_device_seconds) {
      mean.first_device_seconds[part] += share * seconds;
    }
    for (const RankLedger& rank : ledger.ranks) {
      const auto [at, is_new] =
          places.try_emplace({rank.rank, rank.stage}, mean.ranks.size());
      if (is_new) mean.ranks.push_back({rank.rank, rank.stage});
      RankLedger& sum = mean.ranks[at->second];
      sum.parts.Add(rank.parts, share);
      sum.busy_seconds += share * rank.busy_seconds;
    }
    for (const AxisCommunication& along : ledger.communication) {
      const auto [at, is_new] =
          axes.try_emplace(along.axis, mean.communication.size());
      if (is_new) mean.communication.push_back({along.axis});
      AxisCommunication& sum = mean.communication[at->second];
      sum.calls += share * along.calls;
      sum.bytes += share * along.bytes;
      sum.wait_seconds += share * along.wait_seconds;
    }
  }
  return mean;
}

}  // namespace rankwise
