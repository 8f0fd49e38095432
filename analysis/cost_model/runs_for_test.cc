#include "analysis/cost_model/runs_for_test.h"

#include <cmath>
#include <cstdio>

#include "records/record.h"

namespace rankwise {
namespace {

// Solves Phi(z) = p by bisection.
double NormalQuantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    const double below = std::erfc(-middle / std::sqrt(2.0)) / 2;
    (below < p ? low : high) = middle;
  }
  return low;
}

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
  record.launch = config.launch;
  record.calls_per_iteration = static_cast<double>(config.in_flight) *
                               (collective == "ping_pong" ? 2 : 1);
  const double share = rank == 1 ? 1 : 0.5;
  for (const double call : calls) {
    record.seconds.push_back(share * call * record.calls_per_iteration);
  }
  record.seconds.push_back(100 * calls[0] * record.calls_per_iteration);
  record.start_seconds.resize(record.seconds.size());
  if (rank == 0) record.late = {static_cast<int64_t>(calls.size())};
  return record;
}

}  // namespace

std::vector<double> CallsForTest(double seconds, const NoiseForTest& noise,
                                 std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  // The tail lies above the median, which is therefore a higher quantile of the
  // other calls.
  const double shift = noise.spread * NormalQuantile(0.5 / (1 - noise.tail));
  const double middle =
      seconds * std::exp(noise.deviation * normal(random) - shift);
  std::vector<double> calls;
  double state = normal(random);
  for (int i = 0; i < noise.calls; ++i) {
    double call = middle * std::exp(noise.spread * state);
    state =
        noise.correlation * state +
        std::sqrt(1 - noise.correlation * noise.correlation) * normal(random);
    if (uniform(random) < noise.tail) {
      call = middle * std::exp(shift) * (1.5 + 10 * uniform(random));
    }
    calls.push_back(call);
  }
  return calls;
}

void ShareForTest::Add(bool held) {
  ++trials_;
  if (held) ++held_;
}

double ShareForTest::share() const {
  return static_cast<double>(held_) / trials_;
}

std::string ShareForTest::ToString(const std::string& what) const {
  char text[200];
  std::snprintf(text, sizeof(text), "%s: %.1f %% of %d", what.c_str(),
                100 * share(), trials_);
  return text;
}

RunTrace MakeBenchRun(const BenchRunForTest& config) {
  RunTrace run = {"comm.jsonl", {}};
  for (int64_t rank = 0; rank < config.world_size; ++rank) {
    RunRecord record;
    record.run_id = config.backend + "-" + std::to_string(config.world_size) +
                    "-" + std::to_string(config.in_flight);
    record.binary = "comm_bench";
    record.rank = rank;
    record.world_size = config.world_size;
    record.backend = config.backend;
    record.host.hostname = "host";
    record.hosts = config.hosts;
    record.host_index = rank * config.hosts / config.world_size;
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

std::vector<RunTrace> MakeLaunches(const BenchRunForTest& config, int launches,
                                   double launch_deviation, bool tail) {
  std::mt19937_64 random(config.seed);
  std::normal_distribution<double> normal;
  std::student_t_distribution<double> student(3);
  std::vector<RunTrace> runs;
  for (int launch = 0; launch < launches; ++launch) {
    BenchRunForTest one = config;
    const double deviate = tail ? student(random) : normal(random);
    const double shift = std::exp(launch_deviation * deviate);
    one.seconds = [config, shift](double bytes) {
      return shift * config.seconds(bytes);
    };
    one.launch = launch;
    one.seed = random();
    runs.push_back(MakeBenchRun(one));
  }
  return runs;
}

}  // namespace rankwise
