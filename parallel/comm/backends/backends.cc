#include "parallel/comm/backends/backends.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Why `backend` cannot serve rank `env` on `device`. `may_share`: other ranks
// may be on the same GPU.
absl::Status CheckFits(const BackendKind& backend, c10::Device device,
                       bool may_share, const RankEnv& env,
                       const Hardware& hardware) {
  const auto refuse = [&backend](const auto&... reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend=", backend.name, reason...));
  };
  const std::string instead = absl::StrCat("use backend=", HostBackend().name);
  if (!backend.serves_cpu && !hardware.built_with_cuda) {
    return refuse(
        ": this binary was built without CUDA; build it with --config=cuda, "
        "or ",
        instead);
  }
  if (!backend.serves_cpu && !device.is_cuda()) {
    return refuse(" needs a GPU of its own for every rank; ", instead,
                  " on CPUs");
  }
  if (!backend.serves_cuda && device.is_cuda() && !backend.simulates_peers) {
    return refuse(" carries CPU tensors only; use device=cpu, or ", instead);
  }
  if (backend.within_machine && env.local_world_size < env.world_size) {
    return refuse(" carries the ranks of one machine, but ",
                  env.local_world_size, " of ", env.world_size, " are here; ",
                  instead);
  }
  if (backend.needs_pmix && env.world_size > 1 && !env.has_pmix) {
    return refuse(
        " needs ranks started by --nproc, mpirun or srun --mpi=pmix; this rank "
        "was started by ",
        env.launcher, ", and PMIX_RANK is missing or not its rank; ", instead);
  }
  if (backend.why_not != nullptr) {
    const std::string why = backend.why_not();
    if (!why.empty()) return refuse(": ", why);
  }
  if (backend.on_device && may_share) {
    return refuse(" refuses two ranks on ", device.str(), "; ", instead,
                  " to share a GPU");
  }
  return absl::OkStatus();
}

}  // namespace

std::string GroupPlace::Label() const {
  constexpr int kShown = 8;
  if (name.empty()) return "";
  const std::string list =
      size() <= kShown
          ? absl::StrJoin(ranks, ", ")
          : absl::StrCat(ranks[0], ", ", ranks[1], ", ..., ", ranks.back());
  return absl::StrCat(" of group ", name, size() == 1 ? " (rank " : " (ranks ",
                      list, ")");
}

const std::vector<BackendKind>& Backends() {
  using Type = c10d::ProcessGroup::BackendType;
  static const auto& table = *new std::vector<BackendKind>{
      {.name = "gloo",
       .serves_cpu = true,
       .serves_cuda = true,  // through host memory
       .on_device = false,
       .simulates_peers = false,
       .within_machine = false,
       .needs_pmix = false,
       .auto_preference = 1,
       .type = Type::GLOO,
       .make = MakeGloo},
      {.name = "shm",
       .serves_cpu = true,
       .serves_cuda = false,
       .on_device = false,
       .simulates_peers = false,
       .within_machine = true,
       .needs_pmix = false,
       .auto_preference = 3,
       .type = Type::GLOO,
       .make = MakeSharedMemory},
      {.name = "mpi",
       .serves_cpu = true,
       .serves_cuda = false,
       .on_device = false,
       .simulates_peers = false,
       .within_machine = false,
       .needs_pmix = true,
       .auto_preference = 2,  // below shm
       .auto_reason =
           "backend mpi, since mpirun or srun has started the ranks on several "
           "machines: faster than gloo for small messages, about equal for "
           "large ones",
       .type = Type::MPI,
       .make = MakeMpi,
       .why_not = WhyNoMpi},
      {.name = "nccl",
       .serves_cpu = false,
       .serves_cuda = true,
       .on_device = true,
       .simulates_peers = false,
       .within_machine = false,
       .needs_pmix = false,
       .auto_preference = 4,
       .type = Type::NCCL,
       .make = MakeNccl},
      {.name = "fake",
       .serves_cpu = true,
       .serves_cuda = false,
       .on_device = false,
       .simulates_peers = true,
       .within_machine = false,
       .needs_pmix = false,
       .auto_preference = 0,
       .type = Type::CUSTOM,
       .make = MakeFake},
  };
  return table;
}

const BackendKind* FindBackend(absl::string_view name) {
  for (const BackendKind& backend : Backends()) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

const BackendKind& HostBackend() {
  const BackendKind* best = &Backends().front();
  for (const BackendKind& backend : Backends()) {
    if (backend.serves_cpu && !backend.within_machine && !backend.needs_pmix &&
        backend.auto_preference > best->auto_preference) {
      best = &backend;
    }
  }
  return *best;
}

std::vector<std::string> BackendChoices() {
  std::vector<std::string> choices = {"auto"};
  for (const BackendKind& backend : Backends()) choices.push_back(backend.name);
  return choices;
}

absl::StatusOr<std::string> ChooseBackend(const std::string& backend,
                                          const std::string& requested_device,
                                          c10::Device device,
                                          const RankEnv& env,
                                          const Hardware& hardware) {
  const bool may_share =
      absl::StartsWith(requested_device, "cuda:") && env.local_world_size > 1;
  if (backend == "auto") {
    const BackendKind* best = &HostBackend();
    for (const BackendKind& each : Backends()) {
      if (each.auto_preference > best->auto_preference &&
          (device.is_cuda() ? each.serves_cuda : each.serves_cpu) &&
          CheckFits(each, device, may_share, env, hardware).ok()) {
        best = &each;
      }
    }
    return best->name;
  }
  const BackendKind* const chosen = FindBackend(backend);
  if (chosen == nullptr) {
    std::vector<std::string> choices = BackendChoices();
    const std::string last = std::move(choices.back());
    choices.pop_back();
    return absl::InvalidArgumentError(
        absl::StrCat("backend='", backend, "' is unknown; use ",
                     absl::StrJoin(choices, ", "), " or ", last));
  }
  RETURN_IF_ERROR(CheckFits(*chosen, device, may_share, env, hardware));
  return backend;
}

std::string ConnectingFailed(const char* name, const BackendRequest& request) {
  return absl::StrCat("connecting rank ", request.env.rank, " of ",
                      request.env.world_size, " to the others",
                      request.place.Label(), " by ", name, " failed: ");
}

}  // namespace rankwise
