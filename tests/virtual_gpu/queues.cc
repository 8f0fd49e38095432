#include "tests/virtual_gpu/queues.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/devices.h"

namespace rankwise::virtual_gpu {

namespace {

// Shorter operations end immediately.
constexpr double kNoticeableSeconds = 100e-6;

double HostSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Polls by c10d's watchdog are not waits of the program.
bool OnWatchdogThread() {
  thread_local const bool is_watchdog = [] {
    char name[32] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return std::strstr(name, "nccl_watch") != nullptr;
  }();
  return is_watchdog;
}

void JoinHost(const State& state, Stream& stream) {
  if (stream.host_version == state.host_version) return;
  stream.clock.Join(state.host);
  stream.host_version = state.host_version;
}

void Finish(Stream& stream, const Queued& queued) {
  if (queued.awaited)
    stream.seconds = std::max(stream.seconds, queued.awaited->seconds);
  stream.seconds += queued.operation.seconds;
  if (queued.recorded) queued.recorded->seconds = stream.seconds;
  ++stream.done;
}

// Runs a stream's operations in order, forever.
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

}  // namespace

State& TheState() {
  static State& state = *new State;
  return state;
}

Operation Named(const char* name) {
  Operation operation;
  operation.name = name;
  return operation;
}

bool IsOver(const Place& place) {
  return place.stream->done >= place.operation;
}

void CountWait(const State& state, const Stream& stream, uint64_t operation) {
  if (state.host[stream.number] < operation && !OnWatchdogThread())
    ++Counts().waits;
}

bool MayBeSeenOver(const State& state, const Stream& stream, uint64_t operation,
                   double submitted_at) {
  constexpr double kSlowSeconds = 0.05;
  if (stream.done < operation) return false;
  if (state.host[stream.number] >= operation) return true;
  return !WritesCounts() && HostSeconds() - submitted_at > kSlowSeconds;
}

void HostKnows(State& state, const Clock& clock) {
  if (OnWatchdogThread()) return;
  state.host.Join(clock);
  ++state.host_version;
}

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
  // The front stays in the queue while it runs.
  stream.queue.push_back(std::move(queued));
  if (!stream.has_thread) {
    stream.has_thread = true;
    std::thread([&state, &stream] { RunQueue(state, stream); }).detach();
  }
  state.changed.notify_all();
}

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

void Advance(const State& state, Stream& stream) {
  JoinHost(state, stream);
  stream.clock.Set(stream.number, ++stream.submitted);
  stream.submitted_at = HostSeconds();
}

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

}  // namespace rankwise::virtual_gpu
