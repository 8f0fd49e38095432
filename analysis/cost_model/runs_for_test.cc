#include "analysis/cost_model/runs_for_test.h"

#include <random>

#include "records/record.h"

namespace rankwise {
namespace {

CollectiveRecord RecordOf(const BenchRunForTest& config,
                          const std::string& collective, int64_t rank,
                          int64_t bytes, const std::vector<double>& calls) {
  CollectiveRecord record;
  record.rank = rank;
  record.collective = collective;
  record.bytes = bytes;
  record.count = bytes / 4;
  record.dtype = "float32";
  record.in_flight = config.in_flight;
  record.trips = static_cast<double>(config.in_flight) *
                 (collective == "ping_pong" ? 2 : 1);
  const double share = rank == 1 ? 1 : 0.5;
  for (const double call : calls) {
    record.seconds.push_back(share * call * record.trips);
  }
  record.seconds.push_back(100 * calls[0] * record.trips);
  record.start_seconds.resize(record.seconds.size());
  if (rank == 0) record.late = {static_cast<int64_t>(calls.size())};
  return record;
}

}  // namespace

RunTrace MakeBenchRun(const BenchRunForTest& config) {
  RunTrace run = {"comm.jsonl", {}};
  for (int64_t rank = 0; rank < config.world_size; ++rank) {
    RunRecord record;
    record.run_id = "bench-" + std::to_string(config.world_size) + "-" +
                    std::to_string(config.in_flight);
    record.binary = "comm_bench";
    record.rank = rank;
    record.world_size = config.world_size;
    record.backend = config.backend;
    record.host.hostname = "host";
    run.ranks.push_back({.run = record});
  }
  std::mt19937_64 random(config.seed);
  for (const std::string& collective : config.collectives) {
    for (const int64_t bytes : config.bytes) {
      const std::vector<double> calls = CallsForTest(
          config.seconds(static_cast<double>(bytes)), config.noise, random);
      for (RankTrace& rank : run.ranks) {
        rank.collectives.push_back(
            RecordOf(config, collective, rank.run.rank, bytes, calls));
      }
    }
  }
  return run;
}

}  // namespace rankwise
