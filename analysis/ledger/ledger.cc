#include "analysis/ledger/ledger.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

double WaitedAlong(const std::string& axis, const StepRecord& step) {
  const std::map<std::string, double>& by_axis = step.exposed_by_axis_seconds;
  if (by_axis.empty()) return axis == "dp" ? step.exposed_comm_seconds : 0;
  const auto found = by_axis.find(axis);
  return found == by_axis.end() ? 0 : found->second;
}

double GatherSeconds(const StepRecord& step) {
  double seconds = 0;
  for (const UnitWait& unit : step.units) seconds += unit.all_gather_seconds;
  return seconds;
}

// `schedule` is nullptr outside pipelines. Time in a pipeline's schedule that
// is neither computation nor waiting is spent passing messages to the
// transport: the executor does nothing else.
LedgerParts PartsOfStep(const StepRecord& step,
                        const ScheduleRecord* schedule) {
  LedgerParts parts;
  parts.data_wait_seconds = step.data_wait_seconds;
  for (const ExposedAxis& axis : kExposedAxes) {
    parts.*axis.seconds = WaitedAlong(axis.axis, step);
  }
  if (schedule == nullptr) {
    // Exposed communication is part of forward and backward.
    parts.compute_seconds = step.forward_seconds + step.backward_seconds +
                            step.optimizer_seconds + step.captured_seconds -
                            parts.ExposedSeconds();
  } else {
    const double under_way = std::isnan(schedule->exposed_transfer_seconds)
                                 ? 0
                                 : schedule->exposed_transfer_seconds;
    const double handing_over = schedule->schedule_seconds -
                                schedule->busy_seconds - schedule->wait_seconds;
    // Layers wait, also for their parameters, within the schedule's actions;
    // gradients are exchanged after the schedule.
    parts.compute_seconds = schedule->busy_seconds + step.optimizer_seconds -
                            parts.exposed_tp_seconds -
                            parts.exposed_cp_seconds - GatherSeconds(step);
    parts.exposed_pp_seconds += under_way + handing_over;
    parts.bubble_seconds = schedule->wait_seconds - under_way;
  }
  parts.residual_seconds = step.step_seconds - parts.Total();
  return parts;
}

void Add(const StepRecord& step, const ScheduleRecord* schedule,
         LedgerPlace* place) {
  place->steps.push_back(PartsOfStep(step, schedule));
  place->optimizer_seconds += step.optimizer_seconds;
  place->captured_seconds += step.captured_seconds;
  if (schedule != nullptr && std::isnan(schedule->exposed_transfer_seconds)) {
    place->separates_bubble = false;
  }
}

// Returns the consecutive records of `step`, starting at *next; sets *next to
// the index after them.
absl::Span<const ScheduleRecord> RecordsOfStep(
    const std::vector<ScheduleRecord>& records, int64_t step, size_t* next) {
  while (*next < records.size() && records[*next].step < step) ++*next;
  const size_t begin = *next;
  while (*next < records.size() && records[*next].step == step) ++*next;
  return absl::MakeSpan(records).subspan(begin, *next - begin);
}

// Returns one place per schedule record of a step, or a single one without
// schedule records.
std::vector<LedgerPlace> PlacesOf(const RankTrace& trace,
                                  absl::Span<const ScheduleRecord> records) {
  if (trace.schedules.empty()) return {{.rank = trace.run.rank}};
  std::vector<LedgerPlace> places;
  for (const ScheduleRecord& record : records) {
    places.push_back({.rank = trace.run.rank,
                      .stage = records.size() > 1 ? record.pipeline_rank : -1});
  }
  return places;
}

// Whether there is exactly one record of each place.
bool AreOf(absl::Span<const ScheduleRecord> records,
           const std::vector<LedgerPlace>& places) {
  if (records.empty() || records.size() != places.size()) return false;
  for (size_t i = 0; i < records.size(); ++i) {
    const int64_t stage = records[i].pipeline_rank;
    if (i > 0 && stage <= records[i - 1].pipeline_rank) return false;
    if (places[i].stage != -1 && stage != places[i].stage) return false;
  }
  return true;
}

absl::StatusOr<std::vector<LedgerPlace>> ReadPlacesOf(const RankTrace& trace,
                                                      const RunTrace& run,
                                                      size_t first) {
  std::vector<LedgerPlace> places;
  size_t next = 0;
  for (size_t i = first; i < trace.steps.size(); ++i) {
    const StepRecord& step = trace.steps[i];
    const auto records = RecordsOfStep(trace.schedules, step.step, &next);
    if (i == first) places = PlacesOf(trace, records);
    if (!trace.schedules.empty() && !AreOf(records, places)) {
      return RunError(
          run, absl::StrCat("step ", step.step, " of rank ", trace.run.rank,
                            " has ", records.size(),
                            " schedule records, not one of each of its stages; "
                            "did two runs write the file at once?"));
    }
    for (size_t p = 0; p < places.size(); ++p) {
      Add(step, records.empty() ? nullptr : &records[p], &places[p]);
    }
  }
  return places;
}

// More steps add nothing: the expected maximum already has an error of less
// than a hundredth of the ranks' deviation.
constexpr size_t kStepsForNoise = 1 << 16;

LedgerParts Over(LedgerParts sum, size_t count) {
  for (const LedgerPart& part : kLedgerParts)
    sum.*part.seconds /= static_cast<double>(count);
  return sum;
}

double WaitingSeconds(const LedgerParts& parts) {
  return parts.ExposedSeconds() + parts.bubble_seconds;
}

// If all waited equally, returns the rank with the longest total.
const LedgerParts& CriticalOf(const std::vector<LedgerPlace>& places,
                              size_t longest, size_t step) {
  const LedgerParts* critical = &places[longest].steps[step];
  for (const LedgerPlace& place : places) {
    if (WaitingSeconds(place.steps[step]) < WaitingSeconds(*critical)) {
      critical = &place.steps[step];
    }
  }
  return *critical;
}

// Computes Ledger::critical; `ranks` are the means of `places`.
LedgerParts MeasureCritical(const std::vector<LedgerPlace>& places,
                            const std::vector<RankLedger>& ranks) {
  const auto longest =
      absl::c_max_element(ranks, [](const RankLedger& a, const RankLedger& b) {
        return a.parts.Total() < b.parts.Total();
      });
  const size_t steps = places[0].steps.size();
  LedgerParts sum;
  for (size_t i = 0; i < steps; ++i) {
    sum.Add(CriticalOf(places, longest - ranks.begin(), i));
  }
  LedgerParts critical = Over(sum, steps);
  // Ranks end a step's waiting together. The remaining work of the next step's
  // critical rank (the optimizer) is in its record of the previous step, in
  // which another rank may have been critical.
  critical.compute_seconds += longest->parts.Total() - critical.Total();
  return critical;
}

std::vector<RankLedger> MeasureRanks(
    const std::vector<LedgerPlace>& places,
    const std::vector<std::vector<double>>& compute) {
  std::vector<RankLedger> ranks;
  for (size_t i = 0; i < places.size(); ++i) {
    LedgerParts sum;
    for (const LedgerParts& parts : places[i].steps) sum.Add(parts);
    ranks.push_back({places[i].rank, places[i].stage,
                     Over(sum, places[i].steps.size()), Median(compute[i])});
  }
  return ranks;
}

// Returns the expected maximum of a step's ranks, drawn independently from
// their own steps, minus the mean of the slowest rank.
double SlowestByChance(const std::vector<std::vector<double>>& compute) {
  const size_t stride = (compute[0].size() - 1) / kStepsForNoise + 1;
  std::vector<std::vector<double>> samples(compute.size());
  double slowest = 0;
  for (size_t rank = 0; rank < compute.size(); ++rank) {
    for (size_t i = 0; i < compute[rank].size(); i += stride) {
      samples[rank].push_back(compute[rank][i]);
    }
    slowest = std::max(slowest, Mean(samples[rank]));
  }
  return ExpectedMaximum(samples) - slowest;
}

// Sets imbalance_seconds and noise_seconds from ledger->ranks and
// ledger->critical.
void MeasureImbalance(const std::vector<std::vector<double>>& compute,
                      Ledger* ledger) {
  double sum = 0, slowest = 0;
  for (const RankLedger& rank : ledger->ranks) {
    sum += rank.parts.compute_seconds;
    slowest = std::max(slowest, rank.parts.compute_seconds);
  }
  const double mean = sum / ledger->ranks.size();
  ledger->imbalance_seconds = ledger->critical.compute_seconds - mean;
  if (compute.size() < 2) return;
  const double beyond_means = ledger->imbalance_seconds - (slowest - mean);
  ledger->noise_seconds =
      std::max(0.0, std::min(SlowestByChance(compute), beyond_means));
}

double MedianResidualShare(const std::vector<LedgerPlace>& places) {
  std::vector<double> shares;
  for (const LedgerPlace& place : places) {
    for (const LedgerParts& parts : place.steps) {
      const double step = parts.Total();
      if (step > 0) shares.push_back(std::abs(parts.residual_seconds) / step);
    }
  }
  return Median(shares);
}

// Uses rank 0: replicas are in one process.
std::map<std::string, double> FirstDeviceSeconds(
    const RunTrace& run, const ThroughputConfig& config) {
  const auto steps = MeasuredSteps(run.ranks[0], config);
  std::map<std::string, double> seconds;
  for (const StepRecord& step : steps) {
    for (const auto& [part, time] : step.first_device_seconds)
      seconds[part] += time / static_cast<double>(steps.size());
  }
  return seconds;
}

}  // namespace

double LedgerParts::ExposedSeconds() const {
  double total = 0;
  for (const ExposedAxis& axis : kExposedAxes) total += this->*axis.seconds;
  return total;
}

double LedgerParts::Total() const {
  double total = 0;
  for (const LedgerPart& part : kLedgerParts) total += this->*part.seconds;
  return total;
}

void LedgerParts::Add(const LedgerParts& other, double share) {
  for (const LedgerPart& part : kLedgerParts)
    this->*part.seconds += share * other.*part.seconds;
}

absl::StatusOr<std::vector<LedgerPlace>> ReadPlaces(const RunTrace& run,
                                                    size_t first) {
  std::vector<LedgerPlace> places;
  for (const RankTrace& trace : run.ranks) {
    if (Serves(trace)) continue;
    ASSIGN_OR_RETURN(std::vector<LedgerPlace> of_rank,
                     ReadPlacesOf(trace, run, first));
    absl::c_move(of_rank, std::back_inserter(places));
  }
  return places;
}

double ExpectedMaximum(const std::vector<std::vector<double>>& samples) {
  assert(!samples.empty());
  // number of values up to the current one
  std::vector<double> below(samples.size(), 0);
  size_t unseen = samples.size();  // samples without a value up to it
  // Logarithm of the product of the distribution functions: its first value
  // other than 0 may underflow a double.
  double log_product = 0;
  for (const std::vector<double>& sample : samples) {
    assert(!sample.empty());
    log_product -= std::log(static_cast<double>(sample.size()));
  }
  // All values in ascending order, with the index of their sample.
  std::vector<std::pair<double, size_t>> merged;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (double value : samples[i]) merged.emplace_back(value, i);
  }
  absl::c_sort(merged);
  double before = 0, expected = 0;
  for (const auto& [value, i] : merged) {
    if (below[i]++ == 0) {
      --unseen;
    } else {
      log_product += std::log1p(1 / (below[i] - 1));
    }
    if (unseen > 0) continue;
    const double product = std::exp(log_product);
    expected += value * (product - before);
    before = product;
  }
  return expected;
}

absl::StatusOr<Ledger> MeasureLedger(const RunTrace& run,
                                     const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckMeasurable(run, config));
  ASSIGN_OR_RETURN(std::vector<LedgerPlace> places,
                   ReadPlaces(run, config.warmup_steps));
  std::vector<std::vector<double>> compute;
  for (const LedgerPlace& place : places) {
    compute.push_back(NumbersOf(place.steps, &LedgerParts::compute_seconds));
  }
  const size_t steps = compute[0].size();
  Ledger ledger;
  ledger.ranks = MeasureRanks(places, compute);
  ledger.critical = MeasureCritical(places, ledger.ranks);
  MeasureImbalance(compute, &ledger);
  for (const LedgerPlace& place : places) {
    ledger.optimizer_seconds += place.optimizer_seconds;
    ledger.captured_seconds += place.captured_seconds;
    ledger.separates_bubble &= place.separates_bubble;
  }
  ledger.optimizer_seconds /= static_cast<double>(steps * places.size());
  ledger.captured_seconds /= static_cast<double>(steps * places.size());
  ledger.median_residual_share = MedianResidualShare(places);
  ledger.first_device_seconds = FirstDeviceSeconds(run, config);
  ledger.communication = MeasureCommunication(run, ledger.ranks);
  return ledger;
}

}  // namespace rankwise
