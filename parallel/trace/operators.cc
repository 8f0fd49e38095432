#include "parallel/trace/operators.h"

#include <stdlib.h>  // setenv

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "torch/csrc/autograd/profiler_kineto.h"
#include "torch/csrc/profiler/stubs/base.h"

namespace rankwise {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Uses the fastest of a few readings.
int64_t SteadyMinusSystemNs() {
  constexpr int kReadings = 5;
  int64_t shortest = std::numeric_limits<int64_t>::max(), difference = 0;
  for (int i = 0; i < kReadings; ++i) {
    const int64_t before = SteadyNowNs();
    const int64_t system =
        std::chrono::nanoseconds(
            std::chrono::system_clock::now().time_since_epoch())
            .count();
    const int64_t after = SteadyNowNs();
    if (after - before >= shortest) continue;
    shortest = after - before;
    difference = before + (after - before) / 2 - system;
  }
  return difference;
}

}  // namespace

void SilenceProfiler() {
  constexpr char kNothing[] = "5";
  setenv("KINETO_LOG_LEVEL", kNothing, /*overwrite=*/0);
}

void OperatorRecording::Start(bool device) {
  const torch::profiler::impl::ProfilerConfig config(
      torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  steady_minus_system_ns_ = SteadyMinusSystemNs();
  profiler::enableProfiler(
      config, activities,
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
       at::RecordScope::USER_SCOPE});
}

std::vector<TraceSpan> OperatorRecording::Stop() {
  const std::unique_ptr<profiler::ProfilerResult> result =
      profiler::disableProfiler();
  std::vector<TraceSpan> spans;
  std::map<uint64_t, size_t> threads;
  for (const profiler::KinetoEvent& event : result->events()) {
    TraceSpan span;
    span.name = event.name();
    span.category = "operator";
    const auto seconds = [this](uint64_t ns) {
      return static_cast<double>(static_cast<int64_t>(ns) +
                                 steady_minus_system_ns_) *
             1e-9;
    };
    span.start_seconds = seconds(event.startNs());
    span.end_seconds = seconds(event.endNs());
    if (event.deviceType() == c10::DeviceType::CPU) {
      const size_t thread =
          threads.emplace(event.startThreadId(), threads.size()).first->second;
      span.lane = thread == 0 ? "operators"
                              : absl::StrCat("operators, thread ", thread + 1);
    } else {
      span.lane = absl::StrCat("device ", event.deviceIndex(), " stream ",
                               event.deviceResourceId());
      span.category = "kernel";
    }
    spans.push_back(std::move(span));
  }
  return spans;
}

// The stubs call NVTX if libtorch_cuda is loaded; otherwise they are empty.
bool RangesOn() {
  static const bool on = torch::profiler::impl::cudaStubs()->enabled();
  return on;
}

ScopedRange::ScopedRange(const std::string& name) : open_(RangesOn()) {
  if (open_) torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
}

void ScopedRange::Close() {
  if (std::exchange(open_, false))
    torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace rankwise
