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

struct SumMeasurement : Measurement {
  absl::Status Clear() override {
    RETURN_IF_ERROR(
        UploadRepeated(PatternAs(what), count * SizeOf(what), values.get()));
    // All bits set: not a number.
    return FillGpuMemory(0xff, (blocks + 1) * sizeof(float), results.get());
  }

  absl::StatusOr<double> Run() override {
    return timer.Time([this] {
      Start();
      return CudaStatus(cudaGetLastError(), "starting the sum");
    });
  }

  absl::Status Check() override {
    float sum = 0;
    RETURN_IF_ERROR(Download(
        reinterpret_cast<const uint8_t*>(Sum()),
        absl::MakeSpan(reinterpret_cast<uint8_t*>(&sum), sizeof(sum))));
    const int64_t expected = PatternSum(count);
    if (sum == static_cast<float>(expected)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the sum of ", count, " values is ",
                                            sum, " and not ", expected));
  }

  // The sum, then the scratch.
  float* Sum() { return reinterpret_cast<float*>(results.get()); }

  void Start() {
    if (what == SumOf::kFloat) {
      LaunchSum(reinterpret_cast<const float*>(values.get()), count, blocks,
                Sum() + 1, Sum(), timer.stream());
    } else {
      LaunchSumOfBfloat16(reinterpret_cast<const uint16_t*>(values.get()),
                          count, blocks, Sum() + 1, Sum(), timer.stream());
    }
  }

  SumOf what = SumOf::kFloat;
  StreamTimer timer;
  GpuMemory values, results;
  int64_t count = 0;
  int blocks = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeSum(SumOf what, int64_t bytes,
                                                     int multiprocessors) {
  auto made = std::make_unique<SumMeasurement>();
  made->what = what;
  made->count = bytes / SizeOf(what);
  made->blocks = SumBlocks(multiprocessors);
  ASSIGN_OR_RETURN(made->timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(made->values, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(made->results, AllocateGpuMemory((made->blocks + 1) *
                                                    int64_t{sizeof(float)}));
  return made;
}

}  // namespace rankwise::micro
