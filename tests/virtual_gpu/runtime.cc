// The CUDA runtime's functions, implemented with streams.h and devices.h. Those
// that LibTorch imports but no test needs are generated (stubs.sh) and return
// success or "not supported".
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "tests/virtual_gpu/allocations.h"
#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/devices.h"
#include "tests/virtual_gpu/sites.h"
#include "tests/virtual_gpu/streams.h"

namespace gpu = rankwise::virtual_gpu;

namespace {

constexpr double kBytesPerSecond = 2e11;
constexpr double kCopySeconds = 4e-6;

bool Exists(int device) {
  return device >= 0 && device < gpu::VisibleDevices();
}

// There is no context or kernel of cuDNN, so ATen must use its own.
void SwitchCudnnOff() {
  using Context = void;
  const auto context = reinterpret_cast<Context* (*)()>(
      dlsym(RTLD_DEFAULT, "_ZN2at13globalContextEv"));
  for (const char* name : {"_ZN2at7Context19setUserEnabledCuDNNEb",
                           "_ZN2at7Context14setSDPUseCuDNNEb"}) {
    const auto set =
        reinterpret_cast<void (*)(Context*, bool)>(dlsym(RTLD_DEFAULT, name));
    if (context != nullptr && set != nullptr) set(context(), false);
  }
}

void Announce(int count) {
  std::fprintf(stderr, "%d virtual GPU%s: nothing is computed or measured\n",
               count, count == 1 ? "" : "s");
}

void Sleep(long nanoseconds) {
  const timespec time = {0, nanoseconds};
  nanosleep(&time, nullptr);
}

// Copies memory. An asynchronous copy to pinned memory arrives late, and until
// then the host reads invalid values, so that code that does not wait for it
// fails.
gpu::Operation Copy(const char* name, void* to, const void* from,
                    size_t bytes) {
  gpu::Operation copy;
  copy.name = name;
  copy.seconds = kCopySeconds + static_cast<double>(bytes) / kBytesPerSecond;
  copy.accesses = {{to, bytes, true}, {from, bytes, false}};
  copy.crosses_devices = true;
  const bool arrives_late = gpu::DeviceOf(from) >= 0 && gpu::IsPinned(to);
  copy.may_block = arrives_late;
  copy.run = [=] {
    constexpr long kLate = 100'000;
    if (arrives_late) Sleep(kLate);
    std::memmove(gpu::Contents(to), gpu::Contents(from), bytes);
  };
  return copy;
}

cudaError_t EnqueueCopy(const char* name, void* to, const void* from,
                        size_t bytes, cudaStream_t stream) {
  ++gpu::Counts().copies;
  if (bytes == 0) return cudaSuccess;
  for (const void* end : {static_cast<const void*>(to), from}) {
    if (gpu::DeviceOf(end) >= 0 && !gpu::IsAllocated(end, bytes))
      return cudaErrorInvalidValue;
  }
  const bool from_device = gpu::DeviceOf(from) >= 0;
  const bool pageable =
      (from_device && gpu::DeviceOf(to) < 0 && !gpu::IsPinned(to)) ||
      (!from_device && gpu::DeviceOf(to) >= 0 && !gpu::IsPinned(from));
  const bool captured = gpu::CaptureStatus(stream, nullptr, nullptr) !=
                        cudaStreamCaptureStatusNone;
  constexpr int kNonsense = 0xFF;
  if (from_device && gpu::IsPinned(to) && !captured)
    std::memset(to, kNonsense, bytes);
  const cudaError_t error = gpu::Enqueue(stream, Copy(name, to, from, bytes));
  // CUDA stages pageable memory, so the host waits.
  if (error != cudaSuccess || !pageable || captured) return error;
  return gpu::Synchronize(stream);
}

gpu::Operation Set(void* to, int value, size_t bytes) {
  gpu::Operation set;
  set.name = "memset";
  set.seconds = kCopySeconds;
  set.accesses = {{to, bytes, true}};
  set.run = [=] { std::memset(gpu::Contents(to), value, bytes); };
  return set;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = gpu::VisibleDevices();
  if (*count == 0) return gpu::Fail(cudaErrorNoDevice);
  static const bool kOnce = (Announce(*count), SwitchCudnnOff(), true);
  (void)kOnce;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (gpu::VisibleDevices() == 0) return gpu::Fail(cudaErrorNoDevice);
  *device = gpu::CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (gpu::IsSkipped("cudaSetDevice")) return cudaSuccess;
  return gpu::SetCurrentDevice(device) ? cudaSuccess
                                       : gpu::Fail(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!Exists(device)) return gpu::Fail(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "virtual GPU");
  const int index = gpu::MachineIndex(device);
  std::memset(properties->uuid.bytes, 0x20 + index,
              sizeof(properties->uuid.bytes));
  properties->pciBusID = index;
  properties->totalGlobalMem = gpu::kDeviceBytes;
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->l2CacheSize = 50 << 20;
  properties->unifiedAddressing = 1;
  for (int& dimension : properties->maxThreadsDim) dimension = 1024;
  for (int& dimension : properties->maxGridSize) dimension = 65535;
  properties->maxGridSize[0] = 2147483647;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  if (!Exists(device)) return gpu::Fail(cudaErrorInvalidDevice);
  static const std::map<cudaDeviceAttr, int> kValues = {
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMemoryClockRate, 2619000},
      {cudaDevAttrGlobalMemoryBusWidth, 5120},
      {cudaDevAttrL2CacheSize, 50 << 20}};
  const auto found = kValues.find(attribute);
  *value = found == kValues.end() ? 0 : found->second;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!Exists(device)) return gpu::Fail(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0",
                gpu::MachineIndex(device));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = gpu::VisibleDevices() == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!Exists(device) || !Exists(peer))
    return gpu::Fail(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (!Exists(peer)) return gpu::Fail(cudaErrorInvalidDevice);
  return gpu::EnablePeerAccess(gpu::CurrentDevice(), peer)
             ? cudaSuccess
             : gpu::Fail(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceSynchronize() {
  if (gpu::IsSkipped("cudaDeviceSynchronize")) return cudaSuccess;
  return gpu::Fail(gpu::SynchronizeDevice());
}

cudaError_t cudaGetLastError() {
  return std::exchange(gpu::LastError(), cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return gpu::LastError(); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing "
             "blocking stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing "
             "stream";
    default:
      return "an error of the virtual GPU";
  }
}

// Memory.

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const cudaError_t error = gpu::RefuseWhileCapturing();
      error != cudaSuccess)
    return gpu::Fail(error);
  ++gpu::Counts().allocations;
  gpu::FollowAllocations();
  *pointer = gpu::AllocateOnDevice(gpu::CurrentDevice(), bytes);
  if (*pointer == nullptr) return gpu::Fail(cudaErrorMemoryAllocation);
  gpu::ForgetAccesses(*pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t error = gpu::RefuseWhileCapturing();
      error != cudaSuccess)
    return gpu::Fail(error);
  return gpu::FreeOnDevice(pointer) ? cudaSuccess
                                    : gpu::Fail(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (const cudaError_t error = gpu::RefuseWhileCapturing();
      error != cudaSuccess)
    return gpu::Fail(error);
  *pointer = gpu::AllocatePinned(bytes);
  return *pointer == nullptr ? gpu::Fail(cudaErrorMemoryAllocation)
                             : cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  return pointer == nullptr || gpu::FreePinned(pointer)
             ? cudaSuccess
             : gpu::Fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = gpu::FreeBytes(gpu::CurrentDevice());
  *total = gpu::kDeviceBytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* pointer) {
  *attributes = {};
  const int device = gpu::DeviceOf(pointer);
  attributes->type = device >= 0              ? cudaMemoryTypeDevice
                     : gpu::IsPinned(pointer) ? cudaMemoryTypeHost
                                              : cudaMemoryTypeUnregistered;
  attributes->device = device >= 0 ? device : gpu::CurrentDevice();
  if (device >= 0) attributes->devicePointer = const_cast<void*>(pointer);
  if (device < 0) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  return gpu::Fail(EnqueueCopy("memcpy", to, from, bytes, stream));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int,
                                size_t bytes, cudaStream_t stream) {
  return gpu::Fail(EnqueueCopy("peer memcpy", to, from, bytes, stream));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind) {
  if (const cudaError_t error = gpu::RefuseWhileCapturing();
      error != cudaSuccess)
    return gpu::Fail(error);
  const cudaError_t error = EnqueueCopy("memcpy", to, from, bytes, nullptr);
  if (error != cudaSuccess) return gpu::Fail(error);
  return gpu::Fail(gpu::Synchronize(cudaStream_t{nullptr}));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  ++gpu::Counts().copies;
  return gpu::Fail(gpu::Enqueue(stream, Set(to, value, bytes)));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  ++gpu::Counts().copies;
  if (const cudaError_t error = gpu::RefuseWhileCapturing();
      error != cudaSuccess)
    return gpu::Fail(error);
  return gpu::Fail(gpu::Enqueue(nullptr, Set(to, value, bytes)));
}

// Streams and events.

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return gpu::Fail(gpu::CreateStream(stream, /*blocking=*/true));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return gpu::Fail(
      gpu::CreateStream(stream, (flags & cudaStreamNonBlocking) == 0));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return gpu::Fail(gpu::DestroyStream(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (gpu::IsSkipped("cudaStreamSynchronize")) return cudaSuccess;
  return gpu::Fail(gpu::Synchronize(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return gpu::Fail(gpu::Query(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  if (gpu::IsSkipped("cudaStreamWaitEvent")) return cudaSuccess;
  return gpu::Fail(gpu::Wait(stream, event));
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void* data) {
  gpu::Operation call;
  call.name = "host function";
  call.may_block = true;
  call.run = [=] { function(data); };
  return gpu::Fail(gpu::Enqueue(stream, std::move(call)));
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                  cudaStreamCallback_t function, void* data,
                                  unsigned) {
  gpu::Operation call;
  call.name = "callback";
  call.may_block = true;
  call.run = [=] { function(stream, cudaSuccess, data); };
  return gpu::Fail(gpu::Enqueue(stream, std::move(call)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return gpu::Fail(
      gpu::CreateEvent(event, (flags & cudaEventDisableTiming) == 0));
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return gpu::Fail(gpu::CreateEvent(event, /*timing=*/true));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return gpu::Fail(gpu::DestroyEvent(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (gpu::IsSkipped("cudaEventRecord")) return cudaSuccess;
  return gpu::Fail(gpu::Record(event, stream));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned) {
  if (gpu::IsSkipped("cudaEventRecordWithFlags")) return cudaSuccess;
  return gpu::Fail(gpu::Record(event, stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return gpu::Fail(gpu::Query(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (gpu::IsSkipped("cudaEventSynchronize")) return cudaSuccess;
  return gpu::Fail(gpu::Synchronize(event));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
  return gpu::Fail(gpu::Elapsed(start, end, milliseconds));
}

// Graphs.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  return gpu::Fail(gpu::BeginCapture(stream, mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return gpu::Fail(gpu::EndCapture(stream, graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus* status) {
  *status = gpu::CaptureStatus(stream, nullptr, nullptr);
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges,
                                     size_t* count) {
  *status = gpu::CaptureStatus(stream, id, graph);
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = gpu::ExchangeCaptureMode(*mode);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*,
                              size_t* count) {
  *count = gpu::CountNodes(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return gpu::Fail(gpu::DestroyGraph(graph));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return gpu::Fail(gpu::Instantiate(executable, graph));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable,
                                          cudaGraph_t graph,
                                          unsigned long long) {
  return gpu::Fail(gpu::Instantiate(executable, graph));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return gpu::Fail(gpu::Launch(executable, stream));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return gpu::Fail(gpu::DestroyExecutable(executable));
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char*, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
