// The fields of the records about communication: what record_fields.h lists for
// the others.

#ifndef RECORDS_COMM_RECORD_FIELDS_H_
#define RECORDS_COMM_RECORD_FIELDS_H_

#include <algorithm>
#include <type_traits>

#include "records/record.h"

namespace rankwise {

template <typename Fields, typename R>
void ListCollectiveFields(Fields& fields, R& record) {
  fields.Count("rank", record.rank);
  fields.Text("collective", record.collective);
  fields.Text("layer", record.layer);
  fields.CountList("ranks", record.ranks);
  fields.Count("bytes", record.bytes);
  fields.Count("count", record.count);
  fields.Text("dtype", record.dtype);
  fields.Text("op", record.op);
  fields.Count("root", record.root, -1);
  fields.Flag("in_place", record.in_place);
  fields.Count("in_flight", record.in_flight, 1);
  fields.Choice("cache", record.cache, {"hot", "cold"});
  fields.Choice("sync", record.sync, {"barrier", "window", "none"});
  fields.Count("launch", record.launch);
  fields.Number("trips", record.trips);
  fields.Count("wrong", record.wrong, -1);
  fields.Choice(
      "end", record.end,
      {"counted", "precise", "out_of_time", "max_iterations", "interrupted"});
  fields.SecondsList("seconds", record.seconds);
  fields.SecondsList("start_seconds", record.start_seconds);
  fields.CountList("late", record.late);
  fields.Seconds("clock_error_seconds", record.clock_error_seconds);
  if (fields.Has("timing")) {
    fields.Choice("timing", record.timing, {"host", "events"});
    fields.Flag("graph", record.graph);
    fields.Flag("registered", record.registered);
    fields.Text("algorithm", record.algorithm);
    fields.Text("protocol", record.protocol);
  }
  if (fields.Has("bus_factor")) {
    fields.Estimate("bus_factor", record.bus_factor);
    fields.Count("group_size", record.group_size);
  }
}

template <typename Fields, typename R>
void CheckCollective(Fields& fields, const R& record) {
  const auto iterations = static_cast<int64_t>(record.seconds.size());
  fields.Check(record.trips > 0 && record.trips < 1e9,
               "\"trips\" should be above 0");
  fields.Check(record.start_seconds.size() == record.seconds.size(),
               "\"seconds\" and \"start_seconds\" differ in length");
  fields.Check(record.ranks.empty() ||
                   std::find(record.ranks.begin(), record.ranks.end(),
                             record.rank) != record.ranks.end(),
               "\"rank\" is none of \"ranks\"");
  fields.Check(
      record.group_size == 0 || record.ranks.empty() ||
          record.group_size == static_cast<int64_t>(record.ranks.size()),
      "\"group_size\" is not the number of \"ranks\"");
  fields.Check(std::all_of(record.late.begin(), record.late.end(),
                           [iterations](int64_t i) { return i < iterations; }),
               "\"late\" names an iteration that \"seconds\" does not have");
}

template <typename Fields, typename R>
void ListOverlapFields(Fields& fields, R& record) {
  fields.Count("rank", record.rank);
  fields.Text("collective", record.collective);
  fields.Count("bytes", record.bytes);
  fields.Text("dtype", record.dtype);
  fields.Text("op", record.op);
  fields.Flag("in_place", record.in_place);
  fields.Count("gemm_size", record.gemm_size, 1);
  fields.SecondsList("compute_seconds", record.compute_seconds);
  fields.SecondsList("comm_seconds", record.comm_seconds);
  fields.SecondsList("both_seconds", record.both_seconds);
  fields.SecondsList("both_compute_seconds", record.both_compute_seconds);
  fields.SecondsList("both_comm_seconds", record.both_comm_seconds);
  const size_t iterations = record.compute_seconds.size();
  fields.Check(record.comm_seconds.size() == iterations &&
                   record.both_seconds.size() == iterations &&
                   record.both_compute_seconds.size() == iterations &&
                   record.both_comm_seconds.size() == iterations,
               "the lists of seconds differ in length");
}

template <typename Fields, typename R>
void ListTrafficEventFields(Fields& fields, R& record) {
  fields.Text("op", record.op);
  fields.Count("bytes", record.bytes);
  fields.Count("count", record.count);
  fields.Text("dtype", record.dtype);
  fields.Count("peer", record.peer, -1);
  fields.CountList("ranks", record.ranks);
  fields.Seconds("start_seconds", record.start_seconds);
  fields.Estimate("end_seconds", record.end_seconds);
  fields.Estimate("wait_start_seconds", record.wait_start_seconds);
  fields.Check(!(record.end_seconds < record.start_seconds),
               "\"end_seconds\" is before \"start_seconds\"");
  fields.Check(!(record.wait_start_seconds < record.start_seconds),
               "\"wait_start_seconds\" is before \"start_seconds\"");
}

template <typename Fields, typename R>
void ListCommFields(Fields& fields, R& record) {
  using T = std::remove_const_t<R>;
  if constexpr (std::is_same_v<T, CollectiveRecord>) {
    ListCollectiveFields(fields, record);
    CheckCollective(fields, record);
  } else if constexpr (std::is_same_v<T, OverlapRecord>) {
    ListOverlapFields(fields, record);
  } else if constexpr (std::is_same_v<T, RecordedTransfer>) {
    ListTrafficEventFields(fields, record);
  } else if constexpr (std::is_same_v<T, TrafficRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Objects("events", record.events);
    fields.Seconds("step_seconds", record.step_seconds);
    fields.Seconds("exposed_comm_seconds", record.exposed_comm_seconds);
  } else {
    static_assert(std::is_same_v<T, EnvironmentRecord>);
    fields.Count("rank", record.rank);
    fields.Text("topology", record.topology);
    fields.CountList("cpus", record.cpus);
    fields.TextMap("variables", record.variables);
  }
}

}  // namespace rankwise

#endif  // RECORDS_COMM_RECORD_FIELDS_H_
