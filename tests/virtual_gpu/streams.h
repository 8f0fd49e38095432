// Streams, events and graphs: queues of operations that run in order on their
// own threads, with a virtual clock and the order requested by the host.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_STREAMS_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_STREAMS_H_

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#include "tests/virtual_gpu/ordering.h"

namespace rankwise::virtual_gpu {

// An operation and its properties.
struct Operation {
  const char* name = "";         // outlives the process
  std::function<void()> run;     // empty if nothing is computed
  double seconds = 0;            // on the virtual clock
  bool may_block = false;        // runs on the stream's thread, never inline
  bool crosses_devices = false;  // its memory may belong to another device
  std::vector<Access> accesses;  // of device memory
};

// The legacy default stream belongs to the current device.
int DeviceOfStream(cudaStream_t stream);

cudaError_t CreateStream(cudaStream_t* stream, bool blocking);
cudaError_t DestroyStream(cudaStream_t stream);

// Appends the operation, or adds it to the graph if the stream is being
// captured.
cudaError_t Enqueue(cudaStream_t stream, Operation operation);
cudaError_t Query(cudaStream_t stream);
cudaError_t Synchronize(cudaStream_t stream);
cudaError_t SynchronizeDevice();

cudaError_t CreateEvent(cudaEvent_t* event, bool timing);
cudaError_t DestroyEvent(cudaEvent_t event);
cudaError_t Record(cudaEvent_t event, cudaStream_t stream);
cudaError_t Wait(cudaStream_t stream, cudaEvent_t event);
cudaError_t Query(cudaEvent_t event);
cudaError_t Synchronize(cudaEvent_t event);
cudaError_t Elapsed(cudaEvent_t start, cudaEvent_t end, float* milliseconds);

// For calls that are illegal during a capture, depending on this thread's
// capture mode: returns cudaErrorStreamCaptureUnsupported and invalidates the
// capture.
cudaError_t RefuseWhileCapturing();
cudaStreamCaptureMode ExchangeCaptureMode(cudaStreamCaptureMode mode);

cudaError_t BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph);
// Sets *id to 0 if the stream is not being captured.
cudaStreamCaptureStatus CaptureStatus(cudaStream_t stream,
                                      unsigned long long* id,
                                      cudaGraph_t* graph);
size_t CountNodes(cudaGraph_t graph);
cudaError_t DestroyGraph(cudaGraph_t graph);
cudaError_t Instantiate(cudaGraphExec_t* executable, cudaGraph_t graph);
cudaError_t DestroyExecutable(cudaGraphExec_t executable);
cudaError_t Launch(cudaGraphExec_t executable, cudaStream_t stream);

// This thread's error, as returned by cudaGetLastError.
cudaError_t& LastError();
// Stores the error, if it is one, and returns it.
cudaError_t Fail(cudaError_t error);

// For allocated or freed memory: earlier uses do not conflict.
void ForgetAccesses(const void* start, size_t bytes);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_STREAMS_H_
