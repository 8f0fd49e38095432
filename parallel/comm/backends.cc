#include "parallel/comm/backends.h"

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

std::string Attempted(const char* name, const RankEnv& env) {
  return absl::StrCat("connecting rank ", env.rank, " of ", env.world_size,
                      " to the others by ", name, " failed: ");
}

}  // namespace

absl::StatusOr<BackendPtr> MakeGloo(
    const RankEnv& env, const c10::intrusive_ptr<c10d::Store>& store,
    absl::Duration timeout) {
  try {
    auto options = Gloo::Options::create(absl::ToChronoMilliseconds(timeout));
    options->devices.push_back(GlooDevice(env));
    return BackendPtr(
        c10::make_intrusive<Gloo>(store, env.rank, env.world_size, options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        Attempted("Gloo", env), PlainMessage(error),
        "; if machines have several networks, name the interface in "
        "GLOO_SOCKET_IFNAME"));
  }
}

absl::StatusOr<BackendPtr> MakeNccl(
    const RankEnv& env, const c10::intrusive_ptr<c10d::Store>& store,
    c10::Device device, absl::Duration timeout) {
#ifdef RANKWISE_CUDA
  try {
    c10::cuda::set_device(device.index());
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = absl::ToChronoMilliseconds(timeout);
    return BackendPtr(c10::make_intrusive<c10d::ProcessGroupNCCL>(
        store, env.rank, env.world_size, options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(Attempted("NCCL", env), PlainMessage(error)));
  }
#else
  (void)store;
  (void)timeout;
  return absl::UnimplementedError(absl::StrCat(
      Attempted("NCCL", env), "this binary was built without CUDA (",
      device.str(), "); build it with --config=cuda"));
#endif
}

BackendPtr CheckCollectives(BackendPtr backend, BackendPtr checker) {
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(std::move(backend),
                                                        std::move(checker));
}

}  // namespace rankwise
