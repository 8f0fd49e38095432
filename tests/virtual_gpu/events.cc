#include <memory>
#include <mutex>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/devices.h"
#include "tests/virtual_gpu/queues.h"
#include "tests/virtual_gpu/streams.h"

namespace rankwise::virtual_gpu {

namespace {

Event& EventOf(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

cudaError_t Captured(Event& event) {
  if (!event.capture) return cudaSuccess;
  Invalidate(*event.capture);
  return cudaErrorCapturedEvent;
}

}  // namespace

cudaError_t CreateEvent(cudaEvent_t* event, bool timing) {
  ++Counts().events;
  auto* const made = new Event;
  made->device = CurrentDevice();
  made->timing = timing;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}

cudaError_t DestroyEvent(cudaEvent_t event) {
  delete &EventOf(event);
  return cudaSuccess;
}

cudaError_t Record(cudaEvent_t handle, cudaStream_t stream_handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Stream& stream = Find(state, stream_handle);
  Event& event = EventOf(handle);
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  event.capture = stream.capture;
  event.place = std::make_shared<Place>();
  event.place->stream = &stream;
  if (stream.capture) {
    event.place->clock = stream.capture->lines[&stream].clock;
    return stream.capture->invalidated ? cudaErrorStreamCaptureInvalidated
                                       : cudaSuccess;
  }
  OrderWithLegacy(state, stream);
  Advance(state, stream);
  event.place->operation = stream.submitted;
  event.place->submitted_at = stream.submitted_at;
  event.place->clock = stream.clock;
  Submit(state, stream, {Named("event"), nullptr, event.place});
  return cudaSuccess;
}

cudaError_t Wait(cudaStream_t handle, cudaEvent_t event_handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Stream& stream = Find(state, handle);
  Event& event = EventOf(event_handle);
  if (!event.place) return cudaSuccess;  // never recorded: nothing to wait for
  if (event.capture && event.capture->active) {
    if (stream.legacy) return cudaErrorStreamCaptureImplicit;
    if (!stream.capture) {
      stream.capture = event.capture;
    } else if (stream.capture != event.capture) {
      Invalidate(*stream.capture);
      Invalidate(*event.capture);
      return cudaErrorStreamCaptureMerge;
    }
  } else if (stream.capture) {
    Invalidate(*stream.capture);
    return cudaErrorStreamCaptureIsolation;
  } else if (event.capture) {
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream.capture) {
    stream.capture->lines[&stream].clock.Join(event.place->clock);
    return stream.capture->invalidated ? cudaErrorStreamCaptureInvalidated
                                       : cudaSuccess;
  }
  Advance(state, stream);
  stream.clock.Join(event.place->clock);
  Submit(state, stream, {Named("wait"), event.place, nullptr});
  return cudaSuccess;
}

cudaError_t Query(cudaEvent_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Event& event = EventOf(handle);
  if (const cudaError_t error = RefuseLocked(state); error != cudaSuccess)
    return error;
  if (const cudaError_t error = Captured(event); error != cudaSuccess)
    return error;
  if (!event.place) return cudaSuccess;
  const Place& place = *event.place;
  if (!MayBeSeenOver(state, *place.stream, place.operation, place.submitted_at))
    return cudaErrorNotReady;
  HostKnows(state, place.clock);
  return cudaSuccess;
}

cudaError_t Synchronize(cudaEvent_t handle) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  Event& event = EventOf(handle);
  if (const cudaError_t error = Captured(event); error != cudaSuccess)
    return error;
  const std::shared_ptr<Place> place = event.place;
  if (!place) return cudaSuccess;
  CountWait(state, *place->stream, place->operation);
  state.changed.wait(lock, [&] { return IsOver(*place); });
  HostKnows(state, place->clock);
  return cudaSuccess;
}

cudaError_t Elapsed(cudaEvent_t start, cudaEvent_t end, float* milliseconds) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (Event* event : {&EventOf(start), &EventOf(end)}) {
    if (const cudaError_t error = Captured(*event); error != cudaSuccess)
      return error;
    if (!event->place || !event->timing) return cudaErrorInvalidResourceHandle;
    const Place& place = *event->place;
    if (!MayBeSeenOver(state, *place.stream, place.operation,
                       place.submitted_at))
      return cudaErrorNotReady;
  }
  if (EventOf(start).device != EventOf(end).device)
    return cudaErrorInvalidResourceHandle;
  *milliseconds = static_cast<float>(
      1e3 * (EventOf(end).place->seconds - EventOf(start).place->seconds));
  return cudaSuccess;
}

}  // namespace rankwise::virtual_gpu
