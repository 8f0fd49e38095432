#include <cuda_runtime_api.h>

#include <chrono>

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

struct LaunchMeasurement : Measurement {
  absl::Status Clear() override {
    return FillGpuMemory(0, sizeof(int32_t), count.get());
  }

  absl::StatusOr<double> Run() override {
    ASSIGN_OR_RETURN(const double seconds,
                     what == LaunchTime::kBetweenKernels ? timer.Time([this] {
                       return Launch(idle.get(), nullptr);
                     })
                                                         : HostSeconds());
    return seconds / shape.kernels();
  }

  absl::Status Check() override {
    RETURN_IF_ERROR(
        Launch(counting.get(), reinterpret_cast<int32_t*>(count.get())));
    RETURN_IF_ERROR(timer.Finish());
    int32_t counted = 0;
    RETURN_IF_ERROR(Download(
        count.get(),
        absl::MakeSpan(reinterpret_cast<uint8_t*>(&counted), sizeof(counted))));
    if (counted == shape.kernels()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(counted, " kernels ran and not ", shape.kernels()));
  }

  // Kernels where there is no graph.
  absl::Status Launch(CUgraphExec_st* graph, int32_t* target) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < shape.launches && error == cudaSuccess; ++i) {
      if (graph != nullptr) {
        error = cudaGraphLaunch(graph, timer.stream());
      } else {
        LaunchTick(target, timer.stream());
        error = cudaGetLastError();
      }
    }
    return CudaStatus(error, "a launch");
  }

  absl::StatusOr<double> HostSeconds() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    const absl::Status launched = Launch(idle.get(), nullptr);
    Clock::time_point end = Clock::now();
    const absl::Status finished = timer.Finish();
    if (what == LaunchTime::kToFinish) end = Clock::now();
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(finished);
    return std::chrono::duration<double>(end - start).count();
  }

  LaunchTime what = LaunchTime::kOfHost;
  Shape shape;
  StreamTimer timer;
  GpuMemory count;
  Graph idle, counting;  // null: kernels
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeLaunch(Launching how,
                                                        LaunchTime what) {
  auto made = std::make_unique<LaunchMeasurement>();
  made->what = what;
  made->shape = ShapeOf(how, what);
  ASSIGN_OR_RETURN(made->timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(made->count, AllocateGpuMemory(sizeof(int32_t)));
  if (how == Launching::kKernels) return made;
  // Loads the kernel: a capture is no place for that.
  LaunchTick(nullptr, made->timer.stream());
  RETURN_IF_ERROR(made->timer.Finish());
  ASSIGN_OR_RETURN(made->idle, Record(made->shape.kernels_of_launch, nullptr,
                                      made->timer.stream()));
  ASSIGN_OR_RETURN(made->counting,
                   Record(made->shape.kernels_of_launch,
                          reinterpret_cast<int32_t*>(made->count.get()),
                          made->timer.stream()));
  return made;
}

}  // namespace rankwise::micro
