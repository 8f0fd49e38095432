#include "comm_bench/pair_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "ATen/detail/CUDAHooksInterface.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/order_statistics.h"
#include "comm_bench/pair_schedule.h"
#include "comm_bench/rank_clock.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kTag = 0;

// What a pair's lower rank tells after a round; the others tell NaN.
using Result = std::array<double, 2>;  // half round trips: latency, bandwidth

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

  double LeadOne(int peer, int64_t bytes) {
    Tensors message = Message(bytes);
    const RankClock clock = HostClock();
    std::vector<double> half_trips;
    for (int64_t i = 0; i < config_.warmup + config_.iterations; ++i) {
      const double start = clock.now();
      Wait(group_.send(message, peer, kTag));
      Wait(group_.recv(message, peer, kTag));
      if (i >= config_.warmup) half_trips.push_back((clock.now() - start) / 2);
    }
    samples_.push_back({peer, bytes, half_trips});
    return Median(std::move(half_trips));
  }

  Tensors Message(int64_t bytes) const {
    return {at::zeros({bytes}, at::device(config_.device).dtype(at::kByte))};
  }

  void Wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    work->wait();
    if (config_.device.is_cuda()) {
      at::detail::getCUDAHooks().deviceSynchronize(config_.device.index());
    }
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

Result Measure(PingPong& ping_pong, const PairRound& round, int rank) {
  for (const auto& [low, high] : round) {
    if (rank == low) return ping_pong.Lead(high);
    if (rank == high) ping_pong.Follow(low);
  }
  return {kNone, kNone};
}

PairMatrix EmptyMatrix(int world_size) {
  const std::vector<std::vector<double>> empty(
      world_size, std::vector<double>(world_size, kNone));
  return {empty, empty, {}};
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
  for (const PairRound& round : config.concurrently
                                    ? PairsInRounds(world_size)
                                    : PairsOneByOne(world_size)) {
    const Result own = Measure(ping_pong, round, control.rank());
    const double stopped = stop != nullptr && *stop;
    // Keeps the next round from starting before this has ended, too.
    const auto all = control.Gather({own[0], own[1], stopped});
    for (const auto& [low, high] : round) {
      matrix.latency_seconds[low][high] = all[low][0];
      matrix.latency_seconds[high][low] = all[low][0];
      const double bandwidth = config.bandwidth_bytes / all[low][1] * 1e-9;
      matrix.bandwidth_gb_per_s[low][high] = bandwidth;
      matrix.bandwidth_gb_per_s[high][low] = bandwidth;
    }
    if (std::any_of(all.begin(), all.end(),
                    [](const auto& values) { return values[2] != 0; })) {
      break;
    }
  }
  return matrix;
}

absl::StatusOr<std::optional<Straggler>> FindStraggler(const PairMatrix& matrix,
                                                       double factor) {
  if (matrix.world_size() < 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a straggler among ", matrix.world_size(),
        " ranks cannot be told: it takes three, so that there is a pair "
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

}  // namespace rankwise
