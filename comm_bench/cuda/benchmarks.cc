#include "comm_bench/cuda/benchmarks.h"

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

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

absl::Status Run(benchmark::State& state, Measurement& measurement,
                 const Traffic& traffic) {
  RETURN_IF_ERROR(WarmUpAndCheck(measurement));
  measurement.Clear();
  double total = 0;
  for ([[maybe_unused]] auto iteration : state) {
    const double seconds = measurement.Run();
    state.SetIterationTime(seconds);
    total += seconds;
  }
  RETURN_IF_ERROR(measurement.Check());
  Report(state, traffic, total);
  return absl::OkStatus();
}

}  // namespace

bool RunMeasurement(benchmark::State& state, const MakeMeasurement& make,
                    const Traffic& traffic) {
  absl::Status status;
  try {
    status = Run(state, *make(), traffic);
  } catch (const std::exception& error) {
    status = absl::InternalError(PlainMessage(error));
  }
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
  return status.ok();
}

}  // namespace rankwise::micro
