#include "tests/virtual_gpu/streams.h"

#include <mutex>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/devices.h"
#include "tests/virtual_gpu/queues.h"

namespace rankwise::virtual_gpu {

namespace {

Stream* NewStream(State& state, int device, bool blocking, bool legacy) {
  auto* const stream = new Stream;
  stream->number = static_cast<int>(state.streams.size());
  stream->device = device;
  stream->blocking = blocking;
  stream->legacy = legacy;
  state.streams.push_back(stream);
  return stream;
}

void WaitUntilIdle(State& state, std::unique_lock<std::mutex>& lock,
                   Stream& stream) {
  const uint64_t target = stream.submitted;
  CountWait(state, stream, target);
  const Clock clock = stream.clock;
  state.changed.wait(lock, [&] { return stream.done >= target; });
  HostKnows(state, clock);
}

}  // namespace

Stream& Find(State& state, cudaStream_t handle) {
  if (handle != nullptr && handle != cudaStreamLegacy &&
      handle != cudaStreamPerThread)
    return *reinterpret_cast<Stream*>(handle);
  Stream*& stream = state.legacy[CurrentDevice()];
  if (stream == nullptr)
    stream = NewStream(state, CurrentDevice(), /*blocking=*/true,
                       /*legacy=*/true);
  return *stream;
}

int DeviceOfStream(cudaStream_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return Find(state, handle).device;
}

cudaError_t CreateStream(cudaStream_t* stream, bool blocking) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  *stream = reinterpret_cast<cudaStream_t>(
      NewStream(state, CurrentDevice(), blocking, /*legacy=*/false));
  return cudaSuccess;
}

// Queued operations still run, as in CUDA. The object is leaked, because other
// streams may still wait for its operations.
cudaError_t DestroyStream(cudaStream_t) { return cudaSuccess; }

cudaError_t Enqueue(cudaStream_t handle, Operation operation) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Stream& stream = Find(state, handle);
  if (stream.capture) return AddNode(stream, std::move(operation));
  OrderWithLegacy(state, stream);
  Advance(state, stream);
  CheckAccesses(state.accesses, stream, stream.clock, operation);
  Submit(state, stream, {std::move(operation), nullptr, nullptr});
  return cudaSuccess;
}

cudaError_t Query(cudaStream_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Stream& stream = Find(state, handle);
  if (const cudaError_t error = RefuseCaptured(stream); error != cudaSuccess)
    return error;
  if (!MayBeSeenOver(state, stream, stream.submitted, stream.submitted_at))
    return cudaErrorNotReady;
  HostKnows(state, stream.clock);
  return cudaSuccess;
}

cudaError_t Synchronize(cudaStream_t handle) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  Stream& stream = Find(state, handle);
  if (const cudaError_t error = RefuseCaptured(stream); error != cudaSuccess)
    return error;
  if (stream.legacy) OrderWithLegacy(state, stream);
  WaitUntilIdle(state, lock, stream);
  return cudaSuccess;
}

cudaError_t SynchronizeDevice() {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  if (const cudaError_t error = RefuseLocked(state); error != cudaSuccess)
    return error;
  const std::vector<Stream*> streams = state.streams;
  for (Stream* stream : streams) {
    if (stream->device != CurrentDevice()) continue;
    if (const cudaError_t error = RefuseCaptured(*stream); error != cudaSuccess)
      return error;
    WaitUntilIdle(state, lock, *stream);
  }
  return cudaSuccess;
}

cudaError_t& LastError() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t Fail(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) LastError() = error;
  return error;
}

void ForgetAccesses(const void* start, size_t bytes) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.accesses.Forget(start, bytes);
}

}  // namespace rankwise::virtual_gpu
