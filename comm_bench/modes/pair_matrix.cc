#include "comm_bench/modes/pair_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/counted.h"
#include "comm_bench/timing/any_stopped.h"
#include "comm_bench/timing/device_sync.h"
#include "comm_bench/timing/order_statistics.h"
#include "parallel/comm/rank_clock.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kTag = 0;

// What a pair's lower rank tells of it; the others tell NaN.
struct Result {
  Estimate latency_trip = {kNone, kNone, kNone};  // seconds of a round trip
  Estimate bandwidth_trip = latency_trip;

  std::array<double, 6> numbers() const {
    return {latency_trip.value,   latency_trip.low,   latency_trip.high,
            bandwidth_trip.value, bandwidth_trip.low, bandwidth_trip.high};
  }
};

class PingPong {
 public:
  PingPong(c10d::ProcessGroup& group, const PairConfig& config,
           std::vector<PairMatrix::Samples>& samples)
      : group_(group), config_(config), samples_(samples) {}

  Result Lead(int peer) {
    return {LeadOne(peer, config_.latency_bytes),
            LeadOne(peer, config_.bandwidth_bytes)};
  }

  void Follow(int peer) {
    for (const int64_t bytes :
         {config_.latency_bytes, config_.bandwidth_bytes}) {
      Tensors message = Message(bytes);
      for (int64_t i = 0; i < config_.warmup + config_.iterations; ++i) {
        Wait(group_.recv(message, peer, kTag));
        Wait(group_.send(message, peer, kTag));
      }
    }
  }

 private:
  using Tensors = std::vector<at::Tensor>;

  Estimate LeadOne(int peer, int64_t bytes) {
    Tensors message = Message(bytes);
    const RankClock clock = HostClock();
    std::vector<double> trips;
    for (int64_t i = 0; i < config_.warmup + config_.iterations; ++i) {
      const double start = clock.now();
      Wait(group_.send(message, peer, kTag));
      Wait(group_.recv(message, peer, kTag));
      if (i >= config_.warmup) trips.push_back(clock.now() - start);
    }
    samples_.push_back({peer, bytes, trips});
    return EstimateMedian(std::move(trips));
  }

  Tensors Message(int64_t bytes) const {
    return {at::zeros({bytes}, at::device(config_.device).dtype(at::kByte))};
  }

  void Wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    work->wait();
    SynchronizeDevice(config_.device);
  }

  c10d::ProcessGroup& group_;
  const PairConfig& config_;
  std::vector<PairMatrix::Samples>& samples_;
};

absl::Status CheckConfig(const PairConfig& config) {
  for (const auto& [name, value] : std::vector<std::pair<const char*, int64_t>>{
           {"latency_bytes", config.latency_bytes},
           {"bandwidth_bytes", config.bandwidth_bytes},
           {"iterations", config.iterations}}) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pair matrix: ", name, " is ", value, "; it must be at least 1"));
    }
  }
  return absl::OkStatus();
}

Result Measure(PingPong& ping_pong, int low, int high, int rank) {
  if (rank == low) return ping_pong.Lead(high);
  if (rank == high) ping_pong.Follow(low);
  return {};
}

PairMatrix EmptyMatrix(int world_size) {
  const std::vector<std::vector<double>> empty(
      world_size, std::vector<double>(world_size, kNone));
  PairMatrix matrix;
  matrix.latency_seconds = matrix.bandwidth_gb_per_s = empty;
  matrix.latency_reach = matrix.bandwidth_reach = empty;
  return matrix;
}

// What the pair's lower rank told.
void Fill(PairMatrix& matrix, int low, int high, const Result& told,
          int64_t bandwidth_bytes) {
  const auto set = [low, high](std::vector<std::vector<double>>& values,
                               double value) {
    values[low][high] = values[high][low] = value;
  };
  const auto bandwidth = [bandwidth_bytes](double trip) {
    return bandwidth_bytes / (trip / 2) * 1e-9;
  };
  const Estimate& latency = told.latency_trip;
  const Estimate& trip = told.bandwidth_trip;
  const Estimate rate = {bandwidth(trip.value), bandwidth(trip.high),
                         bandwidth(trip.low)};
  set(matrix.latency_seconds, latency.value / 2);
  set(matrix.latency_reach, latency.reach() / latency.value);
  set(matrix.bandwidth_gb_per_s, rate.value);
  set(matrix.bandwidth_reach, rate.reach() / rate.value);
}

// The latencies of all pairs reached that have, or do not have, `rank` in them.
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

}  // namespace

absl::StatusOr<PairMatrix> MeasurePairs(c10d::ProcessGroup& group,
                                        Control& control,
                                        const PairConfig& config,
                                        const std::atomic<bool>* stop) {
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  const int world_size = control.world_size();
  PairMatrix matrix = EmptyMatrix(world_size);
  PingPong ping_pong(group, config, matrix.samples);
  for (int low = 0; low < world_size && !matrix.stopped; ++low) {
    for (int high = low + 1; high < world_size && !matrix.stopped; ++high) {
      const Result own = Measure(ping_pong, low, high, control.rank());
      // Keeps the next pair from starting before this one has ended, too.
      const std::vector<double> told = control.Gather(own.numbers())[low];
      Fill(matrix, low, high,
           {{told[0], told[1], told[2]}, {told[3], told[4], told[5]}},
           config.bandwidth_bytes);
      ++matrix.pairs;
      matrix.stopped = AnyStopped(control, stop);
    }
  }
  return matrix;
}

absl::StatusOr<std::optional<Straggler>> FindStraggler(const PairMatrix& matrix,
                                                       double factor) {
  if (matrix.world_size() < 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a straggler among ", Counted(matrix.world_size(), "rank"),
        " cannot be found: it takes three, so that there is a pair "
        "without it"));
  }
  std::optional<Straggler> found;
  for (int rank = 0; rank < matrix.world_size(); ++rank) {
    const std::vector<double> own = Latencies(matrix, rank, true);
    const std::vector<double> others = Latencies(matrix, rank, false);
    if (own.empty() || others.empty()) continue;
    const double usual = Median(others);
    if (*std::min_element(own.begin(), own.end()) < factor * usual) continue;
    const double delay = Median(own) - usual;
    if (!found || delay > found->delay_seconds) found = {rank, delay};
  }
  return found;
}

}  // namespace rankwise::comm_bench
