#include "parallel/comm/gpu_places.h"

#include <unistd.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "parallel/device/device_facts.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

constexpr char kAlone[] = "ok";
constexpr char kVerdictKey[] = "gpu/verdict";

std::string PlaceKey(int rank) { return absl::StrCat("gpu/", rank); }

std::string Named(const GpuPlace& place) {
  return absl::StrCat("rank ", place.rank, " (", place.device, " on ",
                      place.host, ")");
}

}  // namespace

std::string FormatGpuPlace(const GpuPlace& place) {
  return absl::StrCat(place.host, "|", place.device, "|", place.uuid);
}

absl::StatusOr<GpuPlace> ParseGpuPlace(int rank, absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, '|');
  if (fields.size() != 3) {
    return absl::DataLossError(
        absl::StrCat("not the place of a rank: '", text, "'"));
  }
  return GpuPlace{rank, fields[0], fields[1], fields[2]};
}

absl::Status CheckGpuPlaces(const std::vector<GpuPlace>& places) {
  std::map<std::string, const GpuPlace*> owners;
  for (const GpuPlace& place : places) {
    if (place.uuid.empty()) continue;
    const auto [owner, is_first] = owners.emplace(place.uuid, &place);
    if (is_first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Named(*owner->second), " and ", Named(place), " are on one GPU, ",
        place.uuid,
        "; start fewer ranks, let each rank see its own GPU "
        "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1), or share it by name "
        "with device=",
        place.device));
  }
  return absl::OkStatus();
}

GpuPlace PlaceOf(int rank, c10::Device device) {
  GpuPlace place;
  place.rank = rank;
  place.device = device.str();
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  place.host = host;
  if (!device.is_cuda()) return place;
  const absl::StatusOr<GpuFacts> facts = DescribeGpu(device.index());
  if (facts.ok()) place.uuid = facts->uuid;
  return place;
}

absl::Status CheckGpusOfAllRanks(c10d::Store& store, const GpuPlace& own,
                                 int world_size) {
  store.set(PlaceKey(own.rank), FormatGpuPlace(own));
  if (own.rank == 0) {
    std::vector<GpuPlace> places;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto place = ParseGpuPlace(rank, store.get_to_str(PlaceKey(rank)));
      if (place.ok()) places.push_back(*place);
    }
    const absl::Status verdict = CheckGpuPlaces(places);
    store.set(kVerdictKey,
              verdict.ok() ? kAlone : std::string(verdict.message()));
  }
  const std::string verdict = store.get_to_str(kVerdictKey);
  return verdict == kAlone ? absl::OkStatus()
                           : absl::InvalidArgumentError(verdict);
}

}  // namespace rankwise
