#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gloo/transport/unbound_buffer.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/launch/network.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace rankwise {
namespace {

using Gloo = c10d::ProcessGroupGloo;

std::shared_ptr<gloo::transport::Device> GlooDevice(const RankEnv& env) {
  if (!env.network_interface.empty()) {
    return Gloo::createDeviceForInterface(env.network_interface);
  }
  if (env.local_world_size == env.world_size) {
    return Gloo::createDeviceForHostname("127.0.0.1");
  }
  const absl::StatusOr<std::string> address =
      LocalAddressTowards(env.master_addr);
  // On rank 0's machine the name of the machine may lead to the loopback.
  if (address.ok() && !IsLoopbackAddress(*address)) {
    return Gloo::createDeviceForHostname(*address);
  }
  return Gloo::createDefaultDevice();
}

void Describe(const GroupPlace& place, c10d::Backend::Options& options) {
  if (place.name.empty()) return;
  options.group_name = place.name;
  options.global_ranks_in_group.assign(place.ranks.begin(), place.ranks.end());
}

// ProcessGroupGloo leaves abort() empty.
class AbortableGloo : public Gloo {
 public:
  using Gloo::Gloo;

  // A wait that times out makes Gloo fail everything in flight in its context
  // and close the connections.
  void abort() override {
    for (const auto& context : contexts_) {
      char nothing = 0;
      try {
        context->createUnboundBuffer(&nothing, sizeof(nothing))
            ->waitRecv(nullptr, std::chrono::milliseconds(0));
      } catch (const std::exception&) {
        // The timeout that closes them.
      }
    }
  }
};

}  // namespace

absl::StatusOr<BackendPtr> MakeGloo(const BackendRequest& request) {
  const GroupPlace& place = request.place;
  try {
    auto options = Gloo::Options::create(
        absl::ToChronoMilliseconds(request.collective_timeout));
    options->devices.push_back(GlooDevice(request.env));
    Describe(place, *options);
    return BackendPtr(c10::make_intrusive<AbortableGloo>(
        request.store, place.rank, place.size(), options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        ConnectingFailed("Gloo", request), PlainMessage(error),
        "; if machines have several networks, name the interface in "
        "GLOO_SOCKET_IFNAME"));
  }
}

}  // namespace rankwise
