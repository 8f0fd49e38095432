// Tests that virtual GPUs detect errors: each error alone, next to the correct
// program.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "gtest/gtest.h"

namespace {

constexpr size_t kBytes = 1 << 20;
constexpr int kFaultCode = 70;

class MistakesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Programs that end in a fault run in a separate process.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
        std::strcmp(properties.name, "virtual GPU") != 0)
      GTEST_SKIP() << "needs a virtual GPU (--config=virtual_gpu)";
  }
};

void Check(cudaError_t error) {
  if (error != cudaSuccess) std::abort();
}

struct Memory {
  Memory() { Check(cudaMalloc(&start, kBytes)); }
  void* start = nullptr;
};

struct Stream {
  Stream() { Check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  void Set(const Memory& memory) const {
    Check(cudaMemsetAsync(memory.start, 1, kBytes, handle));
  }
  // Waits for all work enqueued in `other`.
  void WaitFor(const Stream& other) const {
    cudaEvent_t event;
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Check(cudaEventRecord(event, other.handle));
    Check(cudaStreamWaitEvent(handle, event, 0));
    Check(cudaEventDestroy(event));
  }
  cudaStream_t handle = nullptr;
};

// Runs `work` in a separate process, which then ends.
void ExpectFault(const std::function<void()>& work, const char* message) {
  EXPECT_EXIT((work(), std::exit(0)), ::testing::ExitedWithCode(kFaultCode),
              message);
}

void ExpectNoFault(const std::function<void()>& work) {
  EXPECT_EXIT((work(), std::exit(0)), ::testing::ExitedWithCode(0),
              "^([0-9]+ virtual GPUs?: nothing is computed or measured\n)?$");
}

TEST_F(MistakesTest, AMissingWaitBetweenStreams) {
  const auto run = [](bool waits) {
    const Memory memory;
    const Stream first, second;
    first.Set(memory);
    if (waits) second.WaitFor(first);
    second.Set(memory);
  };
  ExpectNoFault([&] { run(true); });
  ExpectFault([&] { run(false); }, "nothing orders the two");
}

TEST_F(MistakesTest, AnEventRecordedTooEarly) {
  ExpectFault(
      [] {
        const Memory memory;
        const Stream first, second;
        second.WaitFor(first);
        first.Set(memory);
        second.Set(memory);
      },
      "nothing orders the two");
}

TEST_F(MistakesTest, TheHostsWaitOrders) {
  ExpectNoFault([] {
    const Memory memory;
    const Stream first, second;
    first.Set(memory);
    Check(cudaStreamSynchronize(first.handle));
    second.Set(memory);
  });
}

// ATen's kernel for non-contiguous tensors.
TEST_F(MistakesTest, AStridedTensorThatAnotherStreamReads) {
  const auto run = [](bool waits) {
    const at::Tensor tensor = at::zeros({8, 4}, at::kCUDA);
    const at::Tensor turned = at::ones({4, 8}, at::kCUDA).t();
    Check(cudaDeviceSynchronize());
    const c10::cuda::CUDAStream first = c10::cuda::getStreamFromPool();
    const c10::cuda::CUDAStream second = c10::cuda::getStreamFromPool();
    {
      const c10::cuda::CUDAStreamGuard guard(first);
      (void)tensor.add(1);
    }
    if (waits) Check(cudaStreamSynchronize(first));
    const c10::cuda::CUDAStreamGuard guard(second);
    tensor.copy_(turned);
  };
  ExpectNoFault([&] { run(true); });
  ExpectFault([&] { run(false); },
              "elementwise_kernel.* writes what was read by "
              ".*vectorized_elementwise_kernel");
}

TEST_F(MistakesTest, FreedMemory) {
  ExpectFault(
      [] {
        const Memory memory;
        const Stream stream;
        Check(cudaFree(memory.start));
        stream.Set(memory);
      },
      "freed memory");
}

TEST_F(MistakesTest, MemoryOfAnotherDevice) {
  int devices = 0;
  Check(cudaGetDeviceCount(&devices));
  if (devices < 2) GTEST_SKIP() << "needs 2 GPUs";
  ExpectFault(
      [] {
        const Memory memory;
        Check(cudaSetDevice(1));
        Stream().Set(memory);
      },
      "on GPU 1 uses memory of GPU 0");
}

TEST_F(MistakesTest, TheHostMayNotReadDeviceMemory) {
  const Memory memory;
  EXPECT_DEATH((void)*static_cast<volatile char*>(memory.start), "");
}

// Until it waits, the host reads unwritten memory.
TEST_F(MistakesTest, AnAsynchronousCopyArrivesLate) {
  const Memory memory;
  const Stream stream;
  void* host = nullptr;
  Check(cudaHostAlloc(&host, kBytes, 0));
  stream.Set(memory);
  Check(cudaMemcpyAsync(host, memory.start, kBytes, cudaMemcpyDeviceToHost,
                        stream.handle));
  EXPECT_EQ(*static_cast<unsigned char*>(host), 0xFF);
  Check(cudaStreamSynchronize(stream.handle));
  EXPECT_EQ(*static_cast<unsigned char*>(host), 1);
  Check(cudaFreeHost(host));
}

// Captures `work` and returns the status of the capture.
template <typename Work>
cudaError_t Capture(const Stream& stream, Work work) {
  Check(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal));
  work();
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream.handle, &graph);
  (void)cudaGetLastError();
  return error;
}

TEST_F(MistakesTest, CapturesRefuseWhatCudaRefuses) {
  const Memory memory;
  const Stream stream, other;
  EXPECT_EQ(Capture(stream, [&] { stream.Set(memory); }), cudaSuccess);
  EXPECT_EQ(Capture(stream,
                    [&] {
                      EXPECT_EQ(cudaStreamSynchronize(stream.handle),
                                cudaErrorStreamCaptureUnsupported);
                    }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(Capture(stream,
                    [&] {
                      void* more = nullptr;
                      EXPECT_EQ(cudaMalloc(&more, 1),
                                cudaErrorStreamCaptureUnsupported);
                    }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(Capture(stream,
                    [&] {
                      other.WaitFor(stream);
                      other.Set(memory);
                    }),
            cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(Capture(stream,
                    [&] {
                      other.WaitFor(stream);
                      other.Set(memory);
                      stream.WaitFor(other);
                    }),
            cudaSuccess);
}

TEST_F(MistakesTest, AGraphReplaysItsWork) {
  const Memory memory;
  const Stream stream;
  Check(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal));
  stream.Set(memory);
  cudaGraph_t graph = nullptr;
  Check(cudaStreamEndCapture(stream.handle, &graph));
  cudaGraphExec_t executable = nullptr;
  Check(cudaGraphInstantiate(&executable, graph, 0));
  char host = 0;
  Check(cudaMemcpy(&host, memory.start, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(host, 0) << "capturing runs nothing";
  Check(cudaGraphLaunch(executable, stream.handle));
  Check(cudaStreamSynchronize(stream.handle));
  Check(cudaMemcpy(&host, memory.start, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(host, 1);
}

}  // namespace
