#include "parallel/device/fake_device_for_test.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/util/Exception.h"
#include "parallel/device/fake_device_state_for_test.h"

namespace rankwise {
namespace {

constexpr c10::DeviceIndex kDevices = 2;
constexpr double kMillisecondsPerSecond = 1e3;

struct Event {
  bool reached = false;
  double seconds = 0;
};
using SharedEvent = std::shared_ptr<Event>;

// An entry of a stream: an event to reach, or to wait for.
struct Item {
  SharedEvent event;
  bool waits = false;
};

struct Stream {
  std::deque<Item> given;
  double seconds = 0;
};

struct State {
  std::map<std::pair<int, c10::StreamId>, Stream> streams;
  std::vector<c10::StreamId> current = std::vector<c10::StreamId>(kDevices, 0);
  c10::DeviceIndex device = 0;
  c10::StreamId next_stream = 1;
  std::function<void()> run;
  int waits = 0;
  std::vector<c10::Stream> copies, recorded;
};

State& TheState() {
  static State* const kState = new State;
  return *kState;
}

Stream& Of(const c10::Stream& stream) {
  return TheState().streams[{stream.device_index(), stream.id()}];
}

// Returns whether the stream has progressed.
bool RunStream(Stream& stream, double seconds) {
  bool moved = false;
  while (!stream.given.empty()) {
    const Item& item = stream.given.front();
    if (item.waits && !item.event->reached) break;
    if (!item.waits) *item.event = {true, seconds};
    stream.given.pop_front();
    moved = true;
  }
  return moved;
}

void HostWaits(const std::function<bool()>& reached) {
  if (reached()) return;
  State& state = TheState();
  ++state.waits;
  if (state.run != nullptr) state.run();
  TORCH_CHECK(reached(), "the host waits for a fake device that does not run");
}

SharedEvent& Shared(void* event) { return *static_cast<SharedEvent*>(event); }

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return FakeDevice::At(TheState().device);
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) TheState().device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    setDevice(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override {
    const c10::Device here = WithIndex(device);
    return c10::Stream(c10::Stream::UNSAFE, here,
                       TheState().current[here.index()]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, WithIndex(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, WithIndex(device),
                       TheState().next_stream++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    TheState().current[stream.device_index()] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return FakeDevice::Idle(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    HostWaits([&stream] { return FakeDevice::Idle(stream); });
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    HostWaits([device] {
      const auto& streams = TheState().streams;
      return std::all_of(
          streams.begin(), streams.end(), [device](const auto& stream) {
            return stream.first.first != device || stream.second.given.empty();
          });
    });
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new SharedEvent;
    Shared(*event) = std::make_shared<Event>();
    Of(stream).given.push_back({Shared(*event)});
  }
  void block(void* event, const c10::Stream& stream) const override {
    Of(stream).given.push_back({Shared(event), /*waits=*/true});
  }
  bool queryEvent(void* event) const override { return Shared(event)->reached; }
  void synchronizeEvent(void* event) const override {
    HostWaits([event] { return Shared(event)->reached; });
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return (Shared(to)->seconds - Shared(from)->seconds) *
           kMillisecondsPerSecond;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<SharedEvent*>(event);
  }

 private:
  c10::Device WithIndex(c10::Device device) const {
    return device.has_index() ? device : getDevice();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard);

}  // namespace

c10::Device FakeDevice::At(int index) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

void FakeDevice::Reset() { TheState() = State(); }

void FakeDevice::Run(const c10::Stream& stream, double seconds) {
  RunStream(Of(stream), seconds);
}

void FakeDevice::RunAll(c10::Device device, double seconds) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (auto& [key, stream] : TheState().streams) {
      if (key.first == device.index()) moved |= RunStream(stream, seconds);
    }
  }
}

bool FakeDevice::Idle(const c10::Stream& stream) {
  return Of(stream).given.empty();
}

void FakeDevice::WhenHostWaits(std::function<void()> run) {
  TheState().run = std::move(run);
}

int FakeDevice::waits() { return TheState().waits; }
std::vector<c10::Stream> FakeDevice::copies() { return TheState().copies; }
std::vector<c10::Stream> FakeDevice::recorded() { return TheState().recorded; }

void NoteFakeCopy(const c10::Stream& stream) {
  TheState().copies.push_back(stream);
}

void NoteFakeRecord(const c10::Stream& stream) {
  TheState().recorded.push_back(stream);
}

}  // namespace rankwise
