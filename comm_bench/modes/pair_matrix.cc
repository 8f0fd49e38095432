#include "comm_bench/modes/pair_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/timing/agreement.h"
#include "comm_bench/timing/series.h"
#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kTag = 0;

// Durations of a round trip, measured by a pair's lower rank; NaN on other
// ranks.
struct Result {
  Estimate latency_trip = {kNone, kNone, kNone};
  Estimate bandwidth_trip = latency_trip;
};

using Tensors = std::vector<at::Tensor>;

struct PingPong {
  c10d::ProcessGroup& group;
  const PairConfig& config;
  std::vector<CollectiveRecord>& samples;

  Result Lead(int peer) {
    return {LeadOne(peer, config.latency_bytes),
            LeadOne(peer, config.bandwidth_bytes)};
  }

  void Follow(int peer) {
    for (const int64_t bytes : {config.latency_bytes, config.bandwidth_bytes}) {
      Tensors message = Message(bytes);
      for (int64_t i = 0; i < config.warmup + config.iterations; ++i) {
        Wait(group.recv(message, peer, kTag));
        Wait(group.send(message, peer, kTag));
      }
    }
  }

  Estimate LeadOne(int peer, int64_t bytes) {
    Tensors message = Message(bytes);
    const RankClock clock = HostClock();
    std::vector<double> round_trips;
    for (int64_t i = 0; i < config.warmup + config.iterations; ++i) {
      const double start = clock.now();
      Wait(group.send(message, peer, kTag));
      Wait(group.recv(message, peer, kTag));
      if (i >= config.warmup) round_trips.push_back(clock.now() - start);
    }
    samples.push_back(RoundTrips(group.getRank(), peer, bytes, round_trips));
    return EstimateMedian(std::move(round_trips));
  }

  Tensors Message(int64_t bytes) const {
    return {at::zeros({bytes}, at::device(config.device).dtype(at::kByte))};
  }

  void Wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    work->wait();
    SynchronizeDevice(config.device);
  }
};

PairMatrix EmptyMatrix(int world_size) {
  const std::vector<std::vector<double>> empty(
      world_size, std::vector<double>(world_size, kNone));
  PairMatrix matrix;
  matrix.latency_seconds = matrix.bandwidth_gb_per_s = empty;
  matrix.latency_reach = matrix.bandwidth_reach = empty;
  return matrix;
}

void Fill(PairMatrix& matrix, const RankPair& pair, const Result& result,
          int64_t bandwidth_bytes) {
  const auto set = [&pair](std::vector<std::vector<double>>& values,
                           double value) {
    values[pair.low][pair.high] = values[pair.high][pair.low] = value;
  };
  const auto bandwidth = [bandwidth_bytes](double trip) {
    return bandwidth_bytes / (trip / 2) * 1e-9;
  };
  const Estimate& latency = result.latency_trip;
  const Estimate& trip = result.bandwidth_trip;
  const Estimate rate = {bandwidth(trip.value), bandwidth(trip.high),
                         bandwidth(trip.low)};
  set(matrix.latency_seconds, latency.value / 2);
  set(matrix.latency_reach, latency.reach() / latency.value);
  set(matrix.bandwidth_gb_per_s, rate.value);
  set(matrix.bandwidth_reach, rate.reach() / rate.value);
}

// Returns the latencies of the measured pairs with, or without, `rank`.
std::vector<double> Latencies(const PairMatrix& matrix, int rank, bool own) {
  std::vector<double> latencies;
  for (int low = 0; low < matrix.world_size(); ++low) {
    for (int high = low + 1; high < matrix.world_size(); ++high) {
      const double latency = matrix.latency_seconds[low][high];
      const bool has = low == rank || high == rank;
      if (has == own && !std::isnan(latency)) latencies.push_back(latency);
    }
  }
  return latencies;
}

// Formats "     45.00 +- 1.2%"; without an interval, "     45.00       ".
std::string Cell(double value, double reach) {
  if (std::isnan(value)) return absl::StrFormat("%18s", "-");
  const std::string interval =
      std::isnan(reach) ? "" : absl::StrFormat(" +-%4.1f%%", 100 * reach);
  return absl::StrFormat("%10.2f%-8s", value, interval);
}

std::string Table(const std::string& title,
                  const std::vector<std::vector<double>>& values,
                  const std::vector<std::vector<double>>& reaches,
                  double scale) {
  std::string text = title + "\n  rank";
  for (size_t column = 0; column < values.size(); ++column) {
    absl::StrAppend(&text, absl::StrFormat("%10d        ", column));
  }
  absl::StripTrailingAsciiWhitespace(&text);
  absl::StrAppend(&text, "\n");
  for (size_t row = 0; row < values.size(); ++row) {
    absl::StrAppend(&text, absl::StrFormat("%6d", row));
    for (size_t column = 0; column < values.size(); ++column) {
      absl::StrAppend(&text,
                      Cell(values[row][column] * scale, reaches[row][column]));
    }
    absl::StripTrailingAsciiWhitespace(&text);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

// The circle method (round-robin tournament): with n ranks, plus a dummy if n
// is odd, the last one meets in round r the rank i with 2 i = r, and the others
// meet if i + j = r, all modulo n - 1.
std::vector<std::vector<RankPair>> RoundsOfPairs(int world_size) {
  const int circle = (world_size + 1) / 2 * 2 - 1;
  std::vector<std::vector<RankPair>> rounds;
  for (int r = 1; r <= circle; ++r) {
    std::vector<RankPair>& round = rounds.emplace_back();
    for (int i = 0; i < circle; ++i) {
      const int other = (r - i % circle + circle) % circle;
      const int peer = other == i ? circle : other;
      if (i < peer && peer < world_size) round.push_back({i, peer});
    }
  }
  return rounds;
}

PairMatrix MeasurePairs(c10d::ProcessGroup& group, Control& control,
                        const PairConfig& config,
                        const std::atomic<bool>* stop) {
  const int rank = control.rank();
  PairMatrix matrix = EmptyMatrix(control.world_size());
  PingPong ping_pong = {group, config, matrix.samples};
  for (const std::vector<RankPair>& round :
       RoundsOfPairs(control.world_size())) {
    if (matrix.stopped) break;
    Result own;
    for (const RankPair& pair : round) {
      if (pair.low == rank) own = ping_pong.Lead(pair.high);
      if (pair.high == rank) ping_pong.Follow(pair.low);
    }
    // Also delays the next round until this one has ended.
    const auto& [latency, trip] = own;
    const auto all = control.Gather({latency.value, latency.low, latency.high,
                                     trip.value, trip.low, trip.high});
    for (const RankPair& pair : round) {
      const std::vector<double>& n = all[pair.low];
      Fill(matrix, pair, {{n[0], n[1], n[2]}, {n[3], n[4], n[5]}},
           config.bandwidth_bytes);
      ++matrix.pairs;
    }
    matrix.stopped = AnyStopped(control, stop);
  }
  return matrix;
}

CollectiveRecord RoundTrips(int rank, int peer, int64_t bytes,
                            std::vector<double> seconds) {
  CollectiveRecord record;
  record.rank = rank;
  record.collective = "ping_pong";
  record.ranks = {rank, peer};
  record.group_size = 2;
  record.bus_factor = 1;
  record.bytes = record.count = bytes;
  record.dtype = "uint8";
  record.sync = "none";
  record.calls_per_iteration = 2;
  record.seconds = std::move(seconds);
  double start = 0;
  for (const double each : record.seconds) {
    record.start_seconds.push_back(start);
    start += each;
  }
  return record;
}

std::optional<Straggler> FindStraggler(const PairMatrix& matrix) {
  constexpr double kFactor = 1.5;
  std::optional<Straggler> found;
  for (int rank = 0; rank < matrix.world_size(); ++rank) {
    const std::vector<double> own = Latencies(matrix, rank, true);
    const std::vector<double> others = Latencies(matrix, rank, false);
    if (own.empty() || others.empty()) continue;
    const double usual = Median(others);
    if (*std::min_element(own.begin(), own.end()) < kFactor * usual) continue;
    const double delay = Median(own) - usual;
    if (!found || delay > found->delay_seconds) found = {rank, delay};
  }
  return found;
}

std::string FormatPairMatrix(const PairMatrix& matrix) {
  return Table("latency, us (half round trip), +- its 95 % interval",
               matrix.latency_seconds, matrix.latency_reach, 1e6) +
         Table("bandwidth, GB/s, +- its 95 % interval",
               matrix.bandwidth_gb_per_s, matrix.bandwidth_reach, 1);
}

}  // namespace rankwise::comm_bench
