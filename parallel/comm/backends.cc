#include "parallel/comm/backends.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gloo/transport/unbound_buffer.h"
#include "parallel/comm/network.h"
#include "parallel/comm/plain_error.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp"
#ifdef RANKWISE_CUDA
#include "c10/cuda/CUDAFunctions.h"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
#endif

namespace rankwise {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
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

std::string Attempted(const char* name, const RankEnv& env,
                      const GroupPlace& place) {
  const std::string group =
      place.name.empty() ? ""
                         : absl::StrCat(" of group ", place.name, " (ranks ",
                                        absl::StrJoin(place.ranks, ", "), ")");
  return absl::StrCat("connecting rank ", env.rank, " of ", env.world_size,
                      " to the others", group, " by ", name, " failed: ");
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
        // The timeout that was asked for.
      }
    }
  }
};

}  // namespace

absl::StatusOr<BackendPtr> MakeGloo(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, absl::Duration timeout) {
  try {
    auto options = Gloo::Options::create(absl::ToChronoMilliseconds(timeout));
    options->devices.push_back(GlooDevice(env));
    Describe(place, *options);
    return BackendPtr(c10::make_intrusive<AbortableGloo>(
        store, place.rank, place.size(), options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        Attempted("Gloo", env, place), PlainMessage(error),
        "; if machines have several networks, name the interface in "
        "GLOO_SOCKET_IFNAME"));
  }
}

absl::StatusOr<BackendPtr> MakeNccl(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, c10::Device device,
    absl::Duration timeout) {
#ifdef RANKWISE_CUDA
  try {
    c10::cuda::set_device(device.index());
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = absl::ToChronoMilliseconds(timeout);
    Describe(place, *options);
    return BackendPtr(c10::make_intrusive<c10d::ProcessGroupNCCL>(
        store, place.rank, place.size(), options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(Attempted("NCCL", env, place), PlainMessage(error)));
  }
#else
  (void)store;
  (void)timeout;
  return absl::UnimplementedError(absl::StrCat(
      Attempted("NCCL", env, place), "this binary was built without CUDA (",
      device.str(), "); build it with --config=cuda"));
#endif
}

BackendPtr CheckCollectives(BackendPtr backend, BackendPtr checker) {
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(std::move(backend),
                                                        std::move(checker));
}

}  // namespace rankwise
