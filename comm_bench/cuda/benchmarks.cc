#include "comm_bench/cuda/benchmarks.h"

#include <string>

#include "absl/status/status.h"

namespace rankwise::micro {
namespace {

bool Succeeded(benchmark::State& state, const absl::Status& status) {
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
  return status.ok();
}

void Report(benchmark::State& state, const Traffic& traffic, double seconds) {
  if (traffic.bytes == 0 || seconds <= 0) return;
  const double rate = static_cast<double>(traffic.bytes) *
                      static_cast<double>(state.iterations()) / seconds;
  using benchmark::Counter;
  state.counters["bytes_per_second"] = Counter(rate, Counter::kDefaults);
  state.SetLabel(traffic.limit.what);
  if (traffic.limit.bytes_per_second <= 0) return;
  state.counters["limit_bytes_per_second"] =
      Counter(traffic.limit.bytes_per_second, Counter::kDefaults);
  state.counters["% of limit"] =
      Counter(PercentOf(traffic.limit, rate), Counter::kDefaults);
}

}  // namespace

bool RunMeasurement(benchmark::State& state, Measurement& measurement,
                    const Traffic& traffic) {
  absl::Status status = WarmUpAndCheck(measurement);
  if (status.ok()) status = measurement.Clear();
  if (!Succeeded(state, status)) return false;
  double total = 0;
  for ([[maybe_unused]] auto iteration : state) {
    const absl::StatusOr<double> seconds = measurement.Run();
    status = seconds.status();
    if (!Succeeded(state, status)) break;
    state.SetIterationTime(*seconds);
    total += *seconds;
  }
  if (!status.ok() || !Succeeded(state, measurement.Check())) return false;
  Report(state, traffic, total);
  return true;
}

}  // namespace rankwise::micro
