#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/queues.h"
#include "tests/virtual_gpu/streams.h"

namespace rankwise::virtual_gpu {

namespace {

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// Ends the capture and detaches its streams.
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

void Invalidate(Capture& capture) { capture.invalidated = true; }

cudaError_t AddNode(Stream& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  Capture::Line& line = capture.lines[&stream];
  line.clock.Set(stream.number, ++line.submitted);
  CheckAccesses(capture.accesses, stream, line.clock, operation);
  capture.graph->nodes.push_back(std::move(operation));
  return cudaSuccess;
}

cudaError_t RefuseCaptured(Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  Invalidate(*stream.capture);
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
    Invalidate(*capture);
    refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
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
    Invalidate(*capture);
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    Invalidate(*capture);
    return cudaErrorStreamCaptureWrongThread;
  }
  const Clock& end = capture->lines[&stream].clock;
  const bool joined = std::all_of(
      capture->lines.begin(), capture->lines.end(), [&](const auto& line) {
        return end[line.first->number] >= line.second.submitted;
      });
  Close(state, *capture);
  if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
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
  return stream.capture->invalidated ? cudaStreamCaptureStatusInvalidated
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

}  // namespace rankwise::virtual_gpu
