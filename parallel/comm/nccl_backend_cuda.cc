#include <exception>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDAGraphsC10Utils.h"
#include "c10/cuda/CUDAGuard.h"
#include "parallel/comm/nccl_backend.h"
#include "parallel/comm/plain_error.h"
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

void Connect(Nccl& nccl, c10::Device device) {
  c10d::BarrierOptions options;
  options.device = device;
  nccl.barrier(options)->wait();
}

}  // namespace

absl::StatusOr<BackendPtr> MakeNccl(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, const NcclConfig& config,
    const BackendPtr& parent) {
  try {
    c10::cuda::set_device(config.device.index());
    auto nccl = c10::make_intrusive<Nccl>(store, place.rank, place.size(),
                                          OptionsFor(place, config, parent));
    nccl->setBoundDeviceId(config.device);
    Connect(*nccl, config.device);
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
