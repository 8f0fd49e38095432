#include "parallel/comm/backends.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gloo/transport/unbound_buffer.h"
#include "parallel/comm/direct_all_reduce.h"
#include "parallel/comm/network.h"
#include "parallel/comm/plain_error.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp"

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

void Describe(const GroupPlace& place, c10d::Backend::Options& options) {
  if (place.name.empty()) return;
  options.group_name = place.name;
  options.global_ranks_in_group.assign(place.ranks.begin(), place.ranks.end());
}

// The numeric address by which the other ranks reach this one.
absl::StatusOr<std::string> AddressOf(const RankEnv& env) {
  if (!env.network_interface.empty()) {
    return AddressOfInterface(env.network_interface);
  }
  if (env.local_world_size == env.world_size) return "127.0.0.1";
  absl::StatusOr<std::string> address = LocalAddressTowards(env.master_addr);
  if (!address.ok() || !IsLoopbackAddress(*address)) return address;
  return absl::UnavailableError(
      absl::StrCat(env.master_addr, " leads to the loopback interface only"));
}

// ProcessGroupGloo leaves abort() empty, and is slow where there is little to
// reduce.
class FasterGloo : public Gloo {
 public:
  using Gloo::Gloo;

  void SetDirect(std::unique_ptr<DirectAllReduce> direct) {
    direct_ = std::move(direct);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options) override {
    if (direct_ != nullptr && direct_->Takes(tensors, options)) {
      return direct_->Start(tensors, options);
    }
    return Gloo::allreduce(tensors, options);
  }

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
    if (direct_ != nullptr) direct_->Abort();
  }

 private:
  std::unique_ptr<DirectAllReduce> direct_;  // none: everything goes to Gloo
};

absl::StatusOr<std::unique_ptr<DirectAllReduce>> MakeDirect(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, absl::Duration timeout,
    int64_t max_bytes) {
  absl::StatusOr<std::string> address = AddressOf(env);
  if (!address.ok()) return address.status();
  DirectAllReduceConfig config;
  config.rank = place.rank;
  config.size = place.size();
  config.address = *std::move(address);
  config.max_bytes = max_bytes;
  config.timeout = absl::ToChronoMilliseconds(timeout);
  c10d::PrefixStore part("direct", store);
  return DirectAllReduce::Create(config, part);
}

}  // namespace

std::string ConnectingFailed(const char* name, const RankEnv& env,
                             const GroupPlace& place) {
  const std::string group =
      place.name.empty()
          ? ""
          : absl::StrCat(" of group ", place.name,
                         place.size() == 1 ? " (rank " : " (ranks ",
                         absl::StrJoin(place.ranks, ", "), ")");
  return absl::StrCat("connecting rank ", env.rank, " of ", env.world_size,
                      " to the others", group, " by ", name, " failed: ");
}

absl::StatusOr<BackendPtr> MakeGloo(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, absl::Duration timeout,
    int64_t direct_bytes) {
  constexpr const char* kAdvice =
      "; if machines have several networks, name the interface in "
      "GLOO_SOCKET_IFNAME";
  try {
    auto options = Gloo::Options::create(absl::ToChronoMilliseconds(timeout));
    options->devices.push_back(GlooDevice(env));
    Describe(place, *options);
    auto gloo = c10::make_intrusive<FasterGloo>(store, place.rank, place.size(),
                                                options);
    if (direct_bytes > 0 && place.size() > 1) {
      auto direct = MakeDirect(env, place, store, timeout, direct_bytes);
      if (!direct.ok()) {
        return absl::UnavailableError(
            absl::StrCat(ConnectingFailed("direct all-reduces", env, place),
                         direct.status().message(), kAdvice));
      }
      gloo->SetDirect(*std::move(direct));
    }
    return BackendPtr(std::move(gloo));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        ConnectingFailed("Gloo", env, place), PlainMessage(error), kAdvice));
  }
}

BackendPtr CheckCollectives(BackendPtr backend, BackendPtr checker) {
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(std::move(backend),
                                                        std::move(checker));
}

}  // namespace rankwise
