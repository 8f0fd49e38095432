#include <cuda_runtime_api.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/measurements.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

// Less than a stream takes before a launch blocks.
constexpr int kManyKernels = 256;

struct DestroyGraph {
  void operator()(CUgraphExec_st* graph) const {
    (void)cudaGraphExecDestroy(graph);
  }
};
using Graph = std::unique_ptr<CUgraphExec_st, DestroyGraph>;

// `kernels` ticks, one after another.
absl::StatusOr<Graph> Record(int kernels, int32_t* count, CudaStream stream) {
  RETURN_IF_ERROR(CudaStatus(
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
      "beginning a graph"));
  for (int i = 0; i < kernels; ++i) LaunchTick(count, stream);
  cudaGraph_t recorded = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamEndCapture(stream, &recorded), "ending a graph"));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  RETURN_IF_ERROR(CudaStatus(error, "instantiating a graph"));
  return Graph(graph);
}

struct Shape {
  int launches = 1;
  int kernels_of_launch = 1;
  int kernels() const { return launches * kernels_of_launch; }
};

Shape ShapeOf(Launching how, LaunchTime what) {
  if (what == LaunchTime::kToFinish) return {};
  if (what == LaunchTime::kBetweenKernels && how == Launching::kGraph)
    return {.launches = 1, .kernels_of_launch = kManyKernels};
  return {.launches = kManyKernels, .kernels_of_launch = 1};
}

class LaunchMeasurement : public Measurement {
 public:
  LaunchMeasurement(LaunchTime what, Shape shape, StreamTimer timer,
                    GpuMemory count, Graph idle, Graph counting)
      : what_(what),
        shape_(shape),
        timer_(std::move(timer)),
        count_(std::move(count)),
        idle_(std::move(idle)),
        counting_(std::move(counting)) {}

  absl::Status Clear() override {
    return FillGpuMemory(0, sizeof(int32_t), count_.get());
  }

  absl::StatusOr<double> Run() override {
    ASSIGN_OR_RETURN(const double seconds,
                     what_ == LaunchTime::kBetweenKernels ? timer_.Time([this] {
                       return Launch(idle_.get(), nullptr);
                     })
                                                          : HostSeconds());
    return seconds / shape_.kernels();
  }

  absl::Status Check() override {
    RETURN_IF_ERROR(
        Launch(counting_.get(), reinterpret_cast<int32_t*>(count_.get())));
    RETURN_IF_ERROR(timer_.Finish());
    int32_t counted = 0;
    RETURN_IF_ERROR(Download(
        count_.get(),
        absl::MakeSpan(reinterpret_cast<uint8_t*>(&counted), sizeof(counted))));
    if (counted == shape_.kernels()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(counted, " kernels ran and not ", shape_.kernels()));
  }

 private:
  // Kernels where there is no graph.
  absl::Status Launch(CUgraphExec_st* graph, int32_t* count) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < shape_.launches && error == cudaSuccess; ++i) {
      if (graph != nullptr) {
        error = cudaGraphLaunch(graph, timer_.stream());
      } else {
        LaunchTick(count, timer_.stream());
        error = cudaGetLastError();
      }
    }
    return CudaStatus(error, "a launch");
  }

  absl::StatusOr<double> HostSeconds() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    const absl::Status launched = Launch(idle_.get(), nullptr);
    Clock::time_point end = Clock::now();
    const absl::Status finished = timer_.Finish();
    if (what_ == LaunchTime::kToFinish) end = Clock::now();
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(finished);
    return std::chrono::duration<double>(end - start).count();
  }

  LaunchTime what_;
  Shape shape_;
  StreamTimer timer_;
  GpuMemory count_;
  Graph idle_, counting_;  // null: kernels
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeLaunch(Launching how,
                                                        LaunchTime what) {
  const Shape shape = ShapeOf(how, what);
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory count, AllocateGpuMemory(sizeof(int32_t)));
  Graph idle, counting;
  if (how == Launching::kGraph) {
    // Loads the kernel: a recording is no place for that.
    LaunchTick(nullptr, timer.stream());
    RETURN_IF_ERROR(timer.Finish());
    auto* const counter = reinterpret_cast<int32_t*>(count.get());
    for (auto [graph, target] :
         {std::pair(&idle, static_cast<int32_t*>(nullptr)),
          std::pair(&counting, counter)}) {
      ASSIGN_OR_RETURN(Graph recorded,
                       Record(shape.kernels_of_launch, target, timer.stream()));
      *graph = std::move(recorded);
    }
  }
  return std::make_unique<LaunchMeasurement>(what, shape, std::move(timer),
                                             std::move(count), std::move(idle),
                                             std::move(counting));
}

}  // namespace rankwise::micro
