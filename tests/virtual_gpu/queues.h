// State shared by streams, events and graphs, under one lock, and the order of
// operations.
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

// A position in a stream's queue.
struct Place {
  Stream* stream = nullptr;
  uint64_t operation = 0;
  // end on the virtual clock, once the operation is complete
  double seconds = 0;
  double submitted_at = 0;  // on the host's clock
  Clock clock;
};

// The capture of a graph, in progress or ended.
struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  // The participating streams, each with its own order within the graph.
  struct Line {
    uint64_t submitted = 0;
    Clock clock;
  };
  std::map<Stream*, Line> lines;
  bool active = true;
  bool invalidated = false;
  AccessTable accesses;
  std::unique_ptr<Graph> graph;
};

class Graph {
 public:
  std::vector<Operation> nodes;
};

struct Queued {
  Operation operation;
  std::shared_ptr<Place> awaited;   // must be complete before this begins
  std::shared_ptr<Place> recorded;  // place of the event recorded by this
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
  double seconds = 0;       // end of the last operation, on the virtual clock
  bool has_thread = false;

  Clock clock;  // after the last operation
  uint64_t host_version = 0;
  std::shared_ptr<Capture> capture;
};

class Event {
 public:
  int device = 0;
  bool timing = true;
  std::shared_ptr<Place> place;      // nullptr until recorded
  std::shared_ptr<Capture> capture;  // nullptr if recorded outside a capture
};

// All fields are guarded by `mutex`. Never destroyed.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream*> streams;                    // by number; never removed
  std::map<int, Stream*> legacy;                   // by device
  std::vector<std::shared_ptr<Capture>> captures;  // active
  AccessTable accesses;
  Clock host;  // operations known to the host to be complete
  uint64_t host_version = 1;
  unsigned long long captures_begun = 0;
};

State& TheState();

// The stream of a handle; the legacy stream is the current device's.
Stream& Find(State& state, cudaStream_t handle);

// An operation without work.
Operation Named(const char* name);

bool IsOver(const Place& place);
// Whether a query reports the operation as complete. Delays this for work that
// the host has not waited for, like a slow device; while counts are written,
// until the host waits, so that the counts do not depend on time.
bool MayBeSeenOver(const State& state, const Stream& stream, uint64_t operation,
                   double submitted_at);
// Counts a wait of the host, unless it already knows that the operation is
// complete.
void CountWait(const State& state, const Stream& stream, uint64_t operation);
// Records that the host has observed the end of all operations in `clock`.
void HostKnows(State& state, const Clock& clock);

// Begins the stream's next operation: advances its clock.
void Advance(const State& state, Stream& stream);
// Makes the legacy stream and blocking streams wait for each other.
void OrderWithLegacy(State& state, Stream& stream);
// Appends to the queue, or runs the operation immediately if nothing has to
// wait.
void Submit(State& state, Stream& stream, Queued queued);
// Reports accesses to freed or foreign memory, and unordered accesses.
void CheckAccesses(AccessTable& table, const Stream& stream, const Clock& clock,
                   const Operation& operation);

// Appends the operation to the graph that the stream is captured into.
cudaError_t AddNode(Stream& stream, Operation operation);
void Invalidate(Capture& capture);
// For calls that are illegal on a stream being captured: if it is, invalidates
// the capture and returns cudaErrorStreamCaptureUnsupported.
cudaError_t RefuseCaptured(Stream& stream);
// For calls that are illegal during any capture covered by this thread's
// capture mode: does the same for all these captures.
cudaError_t RefuseLocked(State& state);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_QUEUES_H_
