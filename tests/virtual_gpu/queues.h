// What streams, events and graphs share: their state, under one lock, and the
// order in which operations follow one another.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_QUEUES_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_QUEUES_H_

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/virtual_gpu/ordering.h"
#include "tests/virtual_gpu/streams.h"

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

State& TheState();

// The stream of a handle; a legacy one is the current device's.
Stream& Find(State& state, cudaStream_t handle);

// An operation without work.
Operation Named(const char* name);

bool IsOver(const Place& place);
// Whether a query may find an operation over: a device is as slow as a program
// has to expect, and work that the host has not waited for may take a while.
bool MayBeSeenOver(const State& state, const Stream& stream, uint64_t operation,
                   double submitted_at);
// Counts a wait of the host, unless it knows already that all is over.
void CountWait(const State& state, const Stream& stream, uint64_t operation);
// The host has seen that what `clock` holds is over.
void HostKnows(State& state, const Clock& clock);

// The next operation of the stream's own order.
void Advance(const State& state, Stream& stream);
// Work on the legacy stream and on blocking streams waits for each other.
void OrderWithLegacy(State& state, Stream& stream);
// Appends to the queue; at once where nothing can be waiting.
void Submit(State& state, Stream& stream, Queued queued);
// Reports what the operation may not use, and what nothing orders it with.
void CheckAccesses(AccessTable& table, const Stream& stream, const Clock& clock,
                   const Operation& operation);

// Records the operation in the graph that the stream is captured into.
cudaError_t AddNode(Stream& stream, Operation operation);
void Lose(Capture& capture);
// What cannot be asked of a stream that is being captured loses the capture.
cudaError_t RefuseCaptured(Stream& stream);
// The same of what no stream may be asked, by this thread's capture mode.
cudaError_t RefuseLocked(State& state);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_QUEUES_H_
