// Times of what a stream does, by CUDA's events. For files that are compiled
// with CUDA only.
#ifndef RANKWISE_COMM_BENCH_CUDA_STREAM_TIMER_H_
#define RANKWISE_COMM_BENCH_CUDA_STREAM_TIMER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/cuda/cuda_stream.h"

struct CUevent_st;

namespace rankwise::micro {

struct DestroyStream {
  void operator()(CUstream_st* stream) const;
};
struct DestroyEvent {
  void operator()(CUevent_st* event) const;
};

// A stream of its own on the GPU that was current when it was made, which must
// be current in every call. Not thread-safe.
class StreamTimer {
 public:
  static absl::StatusOr<StreamTimer> Make();

  CudaStream stream() const { return stream_.get(); }

  // Seconds from when the stream gets to what `work` gives it to when it is
  // done. The stream is held until the host has given all of it, so that the
  // host's own time is not in it; a host that is interrupted for long can make
  // it longer, never shorter. Blocks until done.
  absl::StatusOr<double> Time(const std::function<absl::Status()>& work);

  // The same without holding the stream, for work in which the host takes part.
  absl::StatusOr<double> TimeWithHost(
      const std::function<absl::Status()>& work);

  // Blocks until the stream is idle.
  absl::Status Finish();

 private:
  StreamTimer() = default;

  // Of holding; grows when the host is found to need longer.
  int64_t cycles_ = 100'000;  // some 50 us
  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  std::unique_ptr<CUevent_st, DestroyEvent> start_, end_;
};

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_STREAM_TIMER_H_
