#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDAGraphsC10Utils.h"
#include "c10/cuda/CUDAGuard.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace rankwise {
namespace {

using Nccl = c10d::ProcessGroupNCCL;

c10::intrusive_ptr<Nccl::Options> OptionsFor(const BackendRequest& request) {
  const GroupPlace& place = request.place;
  auto options = Nccl::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = absl::ToChronoMilliseconds(request.collective_timeout);
  options->group_name = place.name.empty() ? "all" : place.name;
  options->global_ranks_in_group.assign(place.ranks.begin(), place.ranks.end());
  auto split_from = c10::dynamic_intrusive_pointer_cast<Nccl>(request.parent);
  if (split_from != nullptr) {
    options->split_from = std::move(split_from);
    // Groups created at the same time share no rank.
    options->split_color = place.ranks[0] + 1;
  }
  return options;
}

// Connects on a separate thread. If that does not return, the group is leaked
// to it.
absl::Status Connect(const c10::intrusive_ptr<Nccl>& nccl,
                     const BackendRequest& request) {
  const auto error = std::make_shared<std::string>("nothing was tried");
  const auto connect = [group = nccl.get(), device = request.device, error] {
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
  if (!RunWithin(request.connect_timeout, connect)) {
    // Never freed: its destructor would wait, too.
    (void)c10::intrusive_ptr<Nccl>(nccl).release();
    return absl::DeadlineExceededError(absl::StrCat(
        "not connected within ", absl::FormatDuration(request.connect_timeout),
        "; see what the other ranks print, and NCCL with "
        "NCCL_DEBUG=INFO, or raise the rendezvous timeout"));
  }
  return error->empty() ? absl::OkStatus() : absl::UnavailableError(*error);
}

}  // namespace

void PrepareForNccl() {
  setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", /*overwrite=*/0);
}

absl::StatusOr<BackendPtr> MakeNccl(const BackendRequest& request) {
  try {
    c10::cuda::set_device(request.device.index());
    auto nccl =
        c10::make_intrusive<Nccl>(request.store, request.place.rank,
                                  request.place.size(), OptionsFor(request));
    nccl->setBoundDeviceId(request.device);
    const absl::Status connected = Connect(nccl, request);
    if (!connected.ok()) {
      return absl::Status(
          connected.code(),
          absl::StrCat(ConnectingFailed("NCCL", request), connected.message()));
    }
    return BackendPtr(std::move(nccl));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(ConnectingFailed("NCCL", request), PlainMessage(error)));
  }
}

c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work) {
  const auto* nccl = dynamic_cast<const Nccl::WorkNCCL*>(work.get());
  if (nccl == nullptr) return work;
  return c10::make_intrusive<Nccl::WorkNCCL>(*nccl);
}

void AllowPollingDuringCapture(c10::Device device,
                               const std::function<void()>& ask) {
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
