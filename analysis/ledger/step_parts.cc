#include "analysis/ledger/step_parts.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace rankwise {
namespace {

void Add(const StepRecord& step, const ScheduleRecord* schedule, Place* place) {
  place->steps.push_back(PartsOfStep(step, schedule));
  place->optimizer_seconds += step.optimizer_seconds;
  place->captured_seconds += step.captured_seconds;
  if (schedule != nullptr && std::isnan(schedule->exposed_transfer_seconds)) {
    place->separates_bubble = false;
  }
}

// The records of `step`, which are consecutive, from *next on; *next is left
// behind them.
absl::Span<const ScheduleRecord> RecordsOfStep(
    const std::vector<ScheduleRecord>& records, int64_t step, size_t* next) {
  while (*next < records.size() && records[*next].step < step) ++*next;
  const size_t begin = *next;
  while (*next < records.size() && records[*next].step == step) ++*next;
  return absl::MakeSpan(records).subspan(begin, *next - begin);
}

std::vector<Place> PlacesOf(const RankTrace& trace,
                            absl::Span<const ScheduleRecord> records) {
  std::vector<Place> places;
  for (const ScheduleRecord& record : records) {
    places.push_back({.rank = trace.run.rank,
                      .stage = records.size() > 1 ? record.pipeline_rank : -1});
  }
  return places;
}

// One record of each place.
bool AreOf(absl::Span<const ScheduleRecord> records,
           const std::vector<Place>& places) {
  if (records.empty() || records.size() != places.size()) return false;
  for (size_t i = 0; i < records.size(); ++i) {
    const int64_t stage = records[i].pipeline_rank;
    if (i > 0 && stage <= records[i - 1].pipeline_rank) return false;
    if (places[i].stage != -1 && stage != places[i].stage) return false;
  }
  return true;
}

// Fails with what is wrong, without the file.
absl::StatusOr<std::vector<Place>> PlacesOfPipeline(const RankTrace& trace,
                                                    size_t first) {
  std::vector<Place> places;
  size_t next = 0;
  for (size_t i = first; i < trace.steps.size(); ++i) {
    const StepRecord& step = trace.steps[i];
    const auto records = RecordsOfStep(trace.schedules, step.step, &next);
    if (i == first) places = PlacesOf(trace, records);
    if (!AreOf(records, places)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "step ", step.step, " of rank ", trace.run.rank, " has ",
          records.size(), " schedule records, not one of each of its stages; ",
          "did two runs write the file at once?"));
    }
    for (size_t p = 0; p < places.size(); ++p) {
      Add(step, &records[p], &places[p]);
    }
  }
  return places;
}

Place PlaceWithoutSchedule(const RankTrace& trace, size_t first) {
  Place place{.rank = trace.run.rank};
  place.steps.reserve(trace.steps.size() - first);
  for (size_t i = first; i < trace.steps.size(); ++i) {
    Add(trace.steps[i], nullptr, &place);
  }
  return place;
}

}  // namespace

LedgerParts PartsOfStep(const StepRecord& step,
                        const ScheduleRecord* schedule) {
  LedgerParts parts;
  parts.data_wait_seconds = step.data_wait_seconds;
  parts.exposed_comm_seconds = step.exposed_comm_seconds;
  if (schedule == nullptr) {
    // It lies within backward.
    parts.compute_seconds = step.forward_seconds + step.backward_seconds +
                            step.optimizer_seconds + step.captured_seconds -
                            step.exposed_comm_seconds;
  } else {
    const double under_way = std::isnan(schedule->exposed_transfer_seconds)
                                 ? 0
                                 : schedule->exposed_transfer_seconds;
    const double handing_over = schedule->schedule_seconds -
                                schedule->busy_seconds - schedule->wait_seconds;
    parts.compute_seconds = schedule->busy_seconds + step.optimizer_seconds;
    parts.exposed_comm_seconds += under_way + handing_over;
    parts.bubble_seconds = schedule->wait_seconds - under_way;
  }
  parts.residual_seconds = step.step_seconds - parts.Total();
  return parts;
}

absl::StatusOr<std::vector<Place>> ReadPlaces(const RunTrace& run,
                                              size_t first) {
  std::vector<Place> places;
  for (const RankTrace& trace : run.ranks) {
    if (trace.schedules.empty()) {
      places.push_back(PlaceWithoutSchedule(trace, first));
      continue;
    }
    absl::StatusOr<std::vector<Place>> of_rank = PlacesOfPipeline(trace, first);
    if (!of_rank.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(run.source, ": ", of_rank.status().message()));
    }
    for (Place& place : *of_rank) places.push_back(std::move(place));
  }
  return places;
}

}  // namespace rankwise
