#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDAGraphsC10Utils.h"
#include "c10/cuda/CUDAGuard.h"
#include "parallel/comm/nccl_backend.h"
#include "parallel/comm/plain_error.h"
#include "parallel/comm/run_within.h"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace rankwise {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using Nccl = c10d::ProcessGroupNCCL;

c10::intrusive_ptr<Nccl::Options> OptionsFor(const GroupPlace& place,
                                             const NcclConfig& config,
                                             const BackendPtr& parent) {
  auto options = Nccl::Options::create(config.high_priority_stream);
  options->timeout = absl::ToChronoMilliseconds(config.watchdog_timeout);
  options->group_name = place.name.empty() ? "all" : place.name;
  options->global_ranks_in_group.assign(place.ranks.begin(), place.ranks.end());
  auto split_from = c10::dynamic_intrusive_pointer_cast<Nccl>(parent);
  if (split_from != nullptr) {
    options->split_from = std::move(split_from);
    // Groups that are made at the same time have no rank in common.
    options->split_color = place.ranks[0] + 1;
  }
  return options;
}

// On a thread of its own. When it does not return the group belongs to that
// thread, too.
absl::Status Connect(const c10::intrusive_ptr<Nccl>& nccl,
                     const NcclConfig& config) {
  const auto error = std::make_shared<std::string>("nothing was tried");
  const auto connect = [group = nccl.get(), device = config.device, error] {
    try {
      c10::cuda::set_device(device.index());
      c10d::BarrierOptions options;
      options.device = device;
      group->barrier(options)->wait();
      error->clear();
    } catch (const std::exception& exception) {
      *error = PlainMessage(exception);
    }
  };
  if (!RunWithin(config.connect_timeout, connect)) {
    // Never freed: its destructor would wait, as well.
    (void)c10::intrusive_ptr<Nccl>(nccl).release();
    return absl::DeadlineExceededError(absl::StrCat(
        "not connected within ", absl::FormatDuration(config.connect_timeout),
        "; see what the other ranks print, and NCCL with "
        "NCCL_DEBUG=INFO, or raise the rendezvous timeout"));
  }
  return error->empty() ? absl::OkStatus() : absl::UnavailableError(*error);
}

}  // namespace

void PrepareForNccl() {
  setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", /*overwrite=*/0);
}

absl::StatusOr<BackendPtr> MakeNccl(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, const NcclConfig& config,
    const BackendPtr& parent) {
  try {
    c10::cuda::set_device(config.device.index());
    auto nccl = c10::make_intrusive<Nccl>(store, place.rank, place.size(),
                                          OptionsFor(place, config, parent));
    nccl->setBoundDeviceId(config.device);
    const absl::Status connected = Connect(nccl, config);
    if (!connected.ok()) {
      return absl::Status(connected.code(),
                          absl::StrCat(ConnectingFailed("NCCL", env, place),
                                       connected.message()));
    }
    return BackendPtr(std::move(nccl));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        ConnectingFailed("NCCL", env, place), PlainMessage(error)));
  }
}

c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work) {
  const auto* nccl = dynamic_cast<const Nccl::WorkNCCL*>(work.get());
  if (nccl == nullptr) return work;
  return c10::make_intrusive<Nccl::WorkNCCL>(*nccl);
}

void BesideCaptures(c10::Device device, const std::function<void()>& ask) {
  if (!device.is_cuda()) return ask();
  const c10::cuda::CUDAGuard device_guard(device);
  const c10::cuda::CUDAStreamCaptureModeGuard mode(
      cudaStreamCaptureModeThreadLocal);
  ask();
}

std::string DumpNcclRecorder() {
  return c10d::dump_nccl_trace_json(/*includeCollectives=*/true,
                                    /*onlyActive=*/false);
}

}  // namespace rankwise
