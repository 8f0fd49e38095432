#include "tests/virtual_gpu/streams.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/devices.h"

namespace rankwise::virtual_gpu {

class Graph;
class Stream;

// A place in a stream's queue.
struct Place {
  Stream* stream = nullptr;
  uint64_t operation = 0;
  double seconds = 0;       // on the virtual clock, once the operation is over
  double submitted_at = 0;  // on the host's
  Clock clock;
};

// A graph that is being captured, or was.
struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  // The streams that take part, each with its own order within the graph.
  struct Line {
    uint64_t submitted = 0;
    Clock clock;
  };
  std::map<Stream*, Line> lines;
  bool active = true;
  bool lost = false;
  AccessTable accesses;
  std::unique_ptr<Graph> graph;
};

class Graph {
 public:
  std::vector<Operation> nodes;
};

struct Queued {
  Operation operation;
  std::shared_ptr<Place> awaited;   // not begun before that is over
  std::shared_ptr<Place> recorded;  // an event
};

class Stream {
 public:
  int number = 0;
  int device = 0;
  bool blocking = false;
  bool legacy = false;

  std::deque<Queued> queue;
  uint64_t submitted = 0;
  uint64_t done = 0;
  double submitted_at = 0;  // the last operation, on the host's clock
  double seconds = 0;
  bool has_thread = false;

  Clock clock;  // of its last operation
  uint64_t host_version = 0;
  std::shared_ptr<Capture> capture;
};

class Event {
 public:
  int device = 0;
  bool timing = true;
  std::shared_ptr<Place> place;      // null until recorded
  std::shared_ptr<Capture> capture;  // that recorded it
};

namespace {

// Operations that take less are over at once.
constexpr double kNoticeableSeconds = 100e-6;

// Everything below, under one lock; never destroyed.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream*> streams;                    // by number; never removed
  std::map<int, Stream*> legacy;                   // by device
  std::vector<std::shared_ptr<Capture>> captures;  // active
  AccessTable accesses;
  Clock host;  // what the host knows to be over
  uint64_t host_version = 1;
  unsigned long long captures_begun = 0;
};

State& TheState() {
  static State& state = *new State;
  return state;
}

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

Operation Named(const char* name) {
  Operation operation;
  operation.name = name;
  return operation;
}

double HostSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What c10d's watchdog polls is not what the program has waited for.
bool OnWatchdogThread() {
  thread_local const bool is_watchdog = [] {
    char name[32] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return std::strstr(name, "nccl_watch") != nullptr;
  }();
  return is_watchdog;
}

// Counts a wait of the host, unless it knows already that all is over.
void CountWait(const State& state, const Stream& stream, uint64_t operation) {
  if (state.host[stream.number] < operation && !OnWatchdogThread())
    ++Counts().waits;
}

// Whether a query may find an operation over: a device is as slow as a program
// has to expect, and work that the host has not waited for may take this long.
bool MayBeSeenOver(const State& state, const Stream& stream, uint64_t operation,
                   double submitted_at) {
  constexpr double kSlowSeconds = 0.05;
  if (stream.done < operation) return false;
  return state.host[stream.number] >= operation ||
         HostSeconds() - submitted_at > kSlowSeconds;
}

void HostKnows(State& state, const Clock& clock) {
  if (OnWatchdogThread()) return;
  state.host.Join(clock);
  ++state.host_version;
}

void JoinHost(const State& state, Stream& stream) {
  if (stream.host_version == state.host_version) return;
  stream.clock.Join(state.host);
  stream.host_version = state.host_version;
}

Stream* NewStream(State& state, int device, bool blocking, bool legacy) {
  auto* const stream = new Stream;
  stream->number = static_cast<int>(state.streams.size());
  stream->device = device;
  stream->blocking = blocking;
  stream->legacy = legacy;
  state.streams.push_back(stream);
  return stream;
}

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

bool IsOver(const Place& place) {
  return place.stream->done >= place.operation;
}

void Finish(Stream& stream, const Queued& queued) {
  if (queued.awaited)
    stream.seconds = std::max(stream.seconds, queued.awaited->seconds);
  stream.seconds += queued.operation.seconds;
  if (queued.recorded) queued.recorded->seconds = stream.seconds;
  ++stream.done;
}

// Runs a stream's operations one after another, for ever.
void RunQueue(State& state, Stream& stream) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] {
      return !stream.queue.empty() && (!stream.queue.front().awaited ||
                                       IsOver(*stream.queue.front().awaited));
    });
    Queued queued = std::move(stream.queue.front());
    lock.unlock();
    if (queued.operation.seconds >= kNoticeableSeconds)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(queued.operation.seconds));
    if (queued.operation.run) queued.operation.run();
    lock.lock();
    stream.queue.pop_front();
    Finish(stream, queued);
    state.changed.notify_all();
  }
}

// Appends to the queue; at once where nothing can be waiting.
void Submit(State& state, Stream& stream, Queued queued) {
  stream.seconds = std::max(stream.seconds, HostSeconds());
  const bool idle = stream.queue.empty();
  const bool ready = !queued.awaited || IsOver(*queued.awaited);
  if (idle && ready && !queued.operation.may_block &&
      queued.operation.seconds < kNoticeableSeconds) {
    if (queued.operation.run) queued.operation.run();
    Finish(stream, queued);
    return;
  }
  // Its front stays in the queue while it runs.
  stream.queue.push_back(std::move(queued));
  if (!stream.has_thread) {
    stream.has_thread = true;
    std::thread([&state, &stream] { RunQueue(state, stream); }).detach();
  }
  state.changed.notify_all();
}

void Lose(Capture& capture) { capture.lost = true; }

void CheckAccesses(AccessTable& table, const Stream& stream, const Clock& clock,
                   const Operation& operation) {
  for (const Access& access : operation.accesses) {
    if (access.bytes == 0 || DeviceOf(access.start) < 0) continue;
    if (!IsAllocated(access.start, access.bytes)) {
      ReportFault(std::string(operation.name) + " uses freed memory");
      continue;
    }
    if (!operation.crosses_devices &&
        !MayAccess(stream.device, DeviceOf(access.start))) {
      ReportFault(std::string(operation.name) + " on GPU " +
                  std::to_string(stream.device) + " uses memory of GPU " +
                  std::to_string(DeviceOf(access.start)));
    }
    const std::string conflict =
        table.Add(access, stream.number, clock, operation.name);
    if (!conflict.empty()) {
      ReportFault(std::string(operation.name) + " on stream " +
                  std::to_string(stream.number) + " of GPU " +
                  std::to_string(stream.device) +
                  (access.writes ? " writes" : " reads") + " what was " +
                  conflict + ", and nothing orders the two");
    }
  }
}

// The next operation of the stream's own order.
void Advance(const State& state, Stream& stream) {
  JoinHost(state, stream);
  stream.clock.Set(stream.number, ++stream.submitted);
  stream.submitted_at = HostSeconds();
}

// Work on the legacy stream and on blocking streams waits for each other.
void OrderWithLegacy(State& state, Stream& stream) {
  if (!stream.blocking) return;
  for (Stream* other : state.streams) {
    if (other == &stream || other->device != stream.device ||
        !other->blocking || (!other->legacy && !stream.legacy))
      continue;
    stream.clock.Join(other->clock);
    if (other->done == other->submitted) continue;
    auto place = std::make_shared<Place>();
    place->stream = other;
    place->operation = other->submitted;
    Advance(state, stream);
    Submit(state, stream, {Named("legacy order"), place, nullptr});
  }
}

cudaError_t AddNode(Stream& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.lost) return cudaErrorStreamCaptureInvalidated;
  Capture::Line& line = capture.lines[&stream];
  line.clock.Set(stream.number, ++line.submitted);
  CheckAccesses(capture.accesses, stream, line.clock, operation);
  capture.graph->nodes.push_back(std::move(operation));
  return cudaSuccess;
}

void WaitUntilIdle(State& state, std::unique_lock<std::mutex>& lock,
                   Stream& stream) {
  const uint64_t target = stream.submitted;
  CountWait(state, stream, target);
  const Clock clock = stream.clock;
  state.changed.wait(lock, [&] { return stream.done >= target; });
  HostKnows(state, clock);
}

Event& EventOf(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

cudaError_t Captured(Event& event) {
  if (!event.capture) return cudaSuccess;
  Lose(*event.capture);
  return cudaErrorCapturedEvent;
}

// What cannot be asked of a stream that is being captured loses the capture.
cudaError_t RefuseCaptured(Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  Lose(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t RefuseLocked(State& state) {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool refused = false;
  for (const auto& capture : state.captures) {
    const bool own = capture->thread == std::this_thread::get_id() &&
                     capture->mode != cudaStreamCaptureModeRelaxed;
    const bool of_all = capture_mode == cudaStreamCaptureModeGlobal &&
                        capture->mode == cudaStreamCaptureModeGlobal;
    if (!own && !of_all) continue;
    Lose(*capture);
    refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

// Leaves the streams as they were before the capture.
void Close(State& state, Capture& capture) {
  capture.active = false;
  for (const auto& [stream, line] : capture.lines) stream->capture = nullptr;
  state.captures.erase(
      std::remove_if(
          state.captures.begin(), state.captures.end(),
          [&](const auto& other) { return other.get() == &capture; }),
      state.captures.end());
}

}  // namespace

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

// Its queue is emptied first, as CUDA does; the object stays, as others may
// still wait for its operations.
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
    return stream.capture->lost ? cudaErrorStreamCaptureInvalidated
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
      Lose(*stream.capture);
      Lose(*event.capture);
      return cudaErrorStreamCaptureMerge;
    }
  } else if (stream.capture) {
    Lose(*stream.capture);
    return cudaErrorStreamCaptureIsolation;
  } else if (event.capture) {
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream.capture) {
    stream.capture->lines[&stream].clock.Join(event.place->clock);
    return stream.capture->lost ? cudaErrorStreamCaptureInvalidated
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

cudaError_t RefuseWhileCapturing() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return RefuseLocked(state);
}

cudaStreamCaptureMode ExchangeCaptureMode(cudaStreamCaptureMode mode) {
  return std::exchange(capture_mode, mode);
}

cudaError_t BeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Stream& stream = Find(state, handle);
  if (stream.legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = ++state.captures_begun;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->lines[&stream];
  capture->graph = std::make_unique<Graph>();
  state.captures.push_back(capture);
  stream.capture = std::move(capture);
  return cudaSuccess;
}

cudaError_t EndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  *graph = nullptr;
  Stream& stream = Find(state, handle);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    Lose(*capture);
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    Lose(*capture);
    return cudaErrorStreamCaptureWrongThread;
  }
  const Clock& end = capture->lines[&stream].clock;
  const bool joined = std::all_of(
      capture->lines.begin(), capture->lines.end(), [&](const auto& line) {
        return end[line.first->number] >= line.second.submitted;
      });
  Close(state, *capture);
  if (capture->lost) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = reinterpret_cast<cudaGraph_t>(capture->graph.release());
  return cudaSuccess;
}

cudaStreamCaptureStatus CaptureStatus(cudaStream_t handle,
                                      unsigned long long* id,
                                      cudaGraph_t* graph) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const Stream& stream = Find(state, handle);
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = stream.capture->id;
  if (graph != nullptr)
    *graph = reinterpret_cast<cudaGraph_t>(stream.capture->graph.get());
  return stream.capture->lost ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
}

size_t CountNodes(cudaGraph_t graph) {
  return reinterpret_cast<Graph*>(graph)->nodes.size();
}

cudaError_t DestroyGraph(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}

cudaError_t Instantiate(cudaGraphExec_t* executable, cudaGraph_t graph) {
  *executable = reinterpret_cast<cudaGraphExec_t>(
      new std::shared_ptr<Graph>(new Graph(*reinterpret_cast<Graph*>(graph))));
  return cudaSuccess;
}

cudaError_t DestroyExecutable(cudaGraphExec_t executable) {
  delete reinterpret_cast<std::shared_ptr<Graph>*>(executable);
  return cudaSuccess;
}

cudaError_t Launch(cudaGraphExec_t executable, cudaStream_t stream) {
  ++Counts().graphs;
  const std::shared_ptr<Graph> graph =
      *reinterpret_cast<std::shared_ptr<Graph>*>(executable);
  Operation whole = Named("graph");
  for (const Operation& node : graph->nodes) {
    whole.seconds += node.seconds;
    whole.may_block = whole.may_block || node.may_block;
    whole.accesses.insert(whole.accesses.end(), node.accesses.begin(),
                          node.accesses.end());
  }
  whole.run = [graph] {
    for (const Operation& node : graph->nodes)
      if (node.run) node.run();
  };
  return Enqueue(stream, std::move(whole));
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
