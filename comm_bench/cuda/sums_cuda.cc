#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/byte_pattern.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/measurements.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

int64_t SizeOf(SumOf what) {
  return what == SumOf::kFloat ? sizeof(float) : sizeof(uint16_t);
}

// One period of the pattern as floats, or as their upper halves, which come
// last on the little-endian hosts that have GPUs.
std::vector<uint8_t> PatternAs(SumOf what) {
  const int64_t size = SizeOf(what);
  std::vector<uint8_t> bytes(kPatternPeriod * size);
  uint8_t* next = bytes.data();
  for (const float value : PatternValues()) {
    const auto* const raw = reinterpret_cast<const uint8_t*>(&value);
    std::memcpy(next, raw + sizeof(value) - size, size);
    next += size;
  }
  return bytes;
}

class SumMeasurement : public Measurement {
 public:
  SumMeasurement(SumOf what, StreamTimer timer, GpuMemory values,
                 GpuMemory results, int64_t count, int blocks)
      : what_(what),
        timer_(std::move(timer)),
        values_(std::move(values)),
        results_(std::move(results)),
        count_(count),
        blocks_(blocks) {}

  absl::Status Clear() override {
    RETURN_IF_ERROR(UploadRepeated(PatternAs(what_), count_ * SizeOf(what_),
                                   values_.get()));
    // All bits set: not a number.
    return FillGpuMemory(0xff, (blocks_ + 1) * sizeof(float), results_.get());
  }

  absl::StatusOr<double> Run() override {
    return timer_.Time([this] {
      Start();
      return CudaStatus(cudaGetLastError(), "starting the sum");
    });
  }

  absl::Status Check() override {
    float sum = 0;
    RETURN_IF_ERROR(Download(
        reinterpret_cast<const uint8_t*>(Sum()),
        absl::MakeSpan(reinterpret_cast<uint8_t*>(&sum), sizeof(sum))));
    const int64_t expected = PatternSum(count_);
    if (sum == static_cast<float>(expected)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "the sum of ", count_, " values is ", sum, " and not ", expected));
  }

 private:
  // The sum, then the scratch.
  float* Sum() { return reinterpret_cast<float*>(results_.get()); }

  void Start() {
    if (what_ == SumOf::kFloat) {
      LaunchSum(reinterpret_cast<const float*>(values_.get()), count_, blocks_,
                Sum() + 1, Sum(), timer_.stream());
    } else {
      LaunchSumOfBfloat16(reinterpret_cast<const uint16_t*>(values_.get()),
                          count_, blocks_, Sum() + 1, Sum(), timer_.stream());
    }
  }

  SumOf what_;
  StreamTimer timer_;
  GpuMemory values_, results_;
  int64_t count_;
  int blocks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeSum(SumOf what, int64_t bytes,
                                                     int multiprocessors) {
  const int blocks = SumBlocks(multiprocessors);
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory values, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(
      GpuMemory results,
      AllocateGpuMemory((blocks + 1) * static_cast<int64_t>(sizeof(float))));
  return std::make_unique<SumMeasurement>(what, std::move(timer),
                                          std::move(values), std::move(results),
                                          bytes / SizeOf(what), blocks);
}

}  // namespace rankwise::micro
