#include "tests/virtual_gpu/devices.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace rankwise::virtual_gpu {
namespace {

constexpr size_t kAlignment = 512;  // as cudaMalloc's

// A device's addresses and the location of their contents.
struct Memory {
  char* addresses = nullptr;
  char* contents = nullptr;
  std::map<char*, size_t> live;  // by start
  std::map<char*, size_t> free;  // by start; neighbours are merged
  size_t free_bytes = kDeviceBytes;
};

struct State {
  std::mutex mutex;
  std::vector<int> visible;  // machine indices
  std::vector<Memory> memory;
  std::map<const char*, size_t> pinned;
  std::set<std::pair<int, int>> peers;
};

std::vector<int> ReadVisible() {
  const char* const total_text = std::getenv("RANKWISE_VIRTUAL_GPUS");
  const int total = total_text == nullptr ? 0 : std::atoi(total_text);
  std::vector<int> visible;
  const char* const shown = std::getenv("CUDA_VISIBLE_DEVICES");
  if (shown == nullptr) {
    for (int i = 0; i < total; ++i) visible.push_back(i);
    return visible;
  }
  std::istringstream parts(shown);
  // Like the driver: the first invalid entry ends the list.
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const long index = std::strtol(part.c_str(), &end, 10);
    if (end == part.c_str() || index < 0 || index >= total) break;
    visible.push_back(static_cast<int>(index));
  }
  return visible;
}

char* Map(int protection) {
  void* const start = mmap(nullptr, kDeviceBytes, protection,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start != MAP_FAILED) return static_cast<char*>(start);
  std::perror("virtual GPU: no addresses for device memory");
  std::abort();
}

// Never destroyed: threads of LibTorch outlive static destructors.
State& TheState() {
  static State& state = *[] {
    auto* const made = new State;
    made->visible = ReadVisible();
    made->memory.resize(made->visible.size());
    for (Memory& memory : made->memory) {
      memory.addresses = Map(PROT_NONE);
      memory.contents = Map(PROT_READ | PROT_WRITE);
      memory.free[memory.addresses] = kDeviceBytes;
    }
    return made;
  }();
  return state;
}

thread_local int current_device = 0;

void GiveBack(Memory& memory, char* start, size_t bytes) {
  memory.free_bytes += bytes;
  auto next = memory.free.upper_bound(start);
  if (next != memory.free.end() && start + bytes == next->first) {
    bytes += next->second;
    next = memory.free.erase(next);
  }
  if (next != memory.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      before->second += bytes;
      return;
    }
  }
  memory.free[start] = bytes;
}

std::atomic<int> faults = 0;

// Replaces the program's exit code, which is then meaningless.
struct FailAtExit {
  ~FailAtExit() {
    if (faults > 0) _exit(70);
  }
} fail_at_exit;

}  // namespace

int VisibleDevices() { return static_cast<int>(TheState().visible.size()); }

int MachineIndex(int device) {
  return TheState().visible[static_cast<size_t>(device)];
}

int CurrentDevice() { return current_device; }

bool SetCurrentDevice(int device) {
  if (device < 0 || device >= VisibleDevices()) return false;
  current_device = device;
  return true;
}

void* AllocateOnDevice(int device, size_t bytes) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  Memory& memory = state.memory[static_cast<size_t>(device)];
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (auto it = memory.free.begin(); it != memory.free.end(); ++it) {
    const auto [start, size] = *it;
    if (size < bytes) continue;
    memory.free.erase(it);
    if (size > bytes) memory.free[start + bytes] = size - bytes;
    memory.free_bytes -= bytes;
    memory.live[start] = bytes;
    return start;
  }
  return nullptr;
}

bool FreeOnDevice(void* pointer) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (Memory& memory : state.memory) {
    const auto found = memory.live.find(static_cast<char*>(pointer));
    if (found == memory.live.end()) continue;
    const auto [start, bytes] = *found;
    memory.live.erase(found);
    madvise(memory.contents + (start - memory.addresses), bytes, MADV_DONTNEED);
    GiveBack(memory, start, bytes);
    return true;
  }
  return false;
}

size_t FreeBytes(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.memory[static_cast<size_t>(device)].free_bytes;
}

void* AllocatePinned(size_t bytes) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const start = static_cast<char*>(std::calloc(1, bytes));
  if (start != nullptr) state.pinned[start] = bytes;
  return start;
}

bool FreePinned(void* pointer) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.pinned.erase(static_cast<char*>(pointer)) == 0) return false;
  std::free(pointer);
  return true;
}

bool IsPinned(const void* pointer) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto next = state.pinned.upper_bound(static_cast<const char*>(pointer));
  if (next == state.pinned.begin()) return false;
  --next;
  return static_cast<const char*>(pointer) < next->first + next->second;
}

int DeviceOf(const void* pointer) {
  const std::vector<Memory>& all = TheState().memory;
  const auto* const address = static_cast<const char*>(pointer);
  for (size_t i = 0; i < all.size(); ++i) {
    if (address >= all[i].addresses &&
        address < all[i].addresses + kDeviceBytes)
      return static_cast<int>(i);
  }
  return -1;
}

bool IsAllocated(const void* pointer, size_t bytes) {
  const int device = DeviceOf(pointer);
  if (device < 0) return false;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto& live = state.memory[static_cast<size_t>(device)].live;
  auto* const address = static_cast<char*>(const_cast<void*>(pointer));
  auto next = live.upper_bound(address);
  if (next == live.begin()) return false;
  --next;
  return address + bytes <= next->first + next->second;
}

char* Contents(const void* pointer) {
  auto* const address = static_cast<char*>(const_cast<void*>(pointer));
  const int device = DeviceOf(pointer);
  if (device < 0) return address;
  const Memory& memory = TheState().memory[static_cast<size_t>(device)];
  return memory.contents + (address - memory.addresses);
}

bool EnablePeerAccess(int device, int peer) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.peers.insert({device, peer}).second;
}

bool MayAccess(int device, int peer) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return device == peer || state.peers.count({device, peer}) > 0;
}

void ReportFault(const std::string& what) {
  ++faults;
  const std::string line = "virtual GPU: fault: " + what + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
  if (std::getenv("RANKWISE_VIRTUAL_GPU_STACKS") == nullptr) return;
  void* frames[48];
  backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
}

}  // namespace rankwise::virtual_gpu
