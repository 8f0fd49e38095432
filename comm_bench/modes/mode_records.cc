#include "comm_bench/modes/mode_records.h"

#include "comm_bench/output/end_name.h"
#include "comm_bench/timing/series.h"

namespace rankwise::comm_bench {

CollectiveRecord RecordOf(const PairMatrix::Samples& samples, int rank,
                          int64_t launch) {
  CollectiveRecord record;
  record.rank = rank;
  record.collective = "ping_pong";
  record.ranks = {rank, samples.peer};
  record.group_size = 2;
  record.bus_factor = 1;
  record.bytes = record.count = samples.bytes;
  record.dtype = "uint8";
  record.sync = "none";
  record.launch = launch;
  record.trips = 2;
  record.end = EndName(Series::End::kCounted);  // a stop waits for the pair
  record.seconds = samples.seconds;
  double start = 0;  // one round trip follows the other
  for (const double seconds : samples.seconds) {
    record.start_seconds.push_back(start);
    start += seconds;
  }
  return record;
}

CollectiveRecord RecordOf(const ReplaySamples& samples, bool stopped,
                          const std::string& layer, int rank, int world_size,
                          int64_t launch) {
  CollectiveRecord record;
  record.rank = rank;
  record.group_size = world_size;
  record.collective = "replay";
  record.layer = layer;
  record.launch = launch;
  record.end =
      EndName(stopped ? Series::End::kInterrupted : Series::End::kCounted);
  record.seconds = samples.seconds;
  record.start_seconds = samples.start_seconds;
  return record;
}

Row RowOf(const LadderResult& ladder, const LadderRung& rung) {
  Row row;
  row.collective = "all_reduce";
  row.layer = rung.name;
  row.group_size = ladder.world_size;
  row.bytes = ladder.bytes;
  row.count = ladder.bytes / static_cast<int64_t>(sizeof(float));
  row.dtype = "float32";
  row.op = "sum";
  row.in_place = true;
  row.events = ladder.events;
  return row;
}

}  // namespace rankwise::comm_bench
