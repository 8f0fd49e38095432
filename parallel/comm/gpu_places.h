// Whether ranks share GPUs without being asked to.
#ifndef RANKWISE_PARALLEL_COMM_GPU_PLACES_H_
#define RANKWISE_PARALLEL_COMM_GPU_PLACES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

// What a rank computes on.
struct GpuPlace {
  int rank = 0;
  std::string host;
  std::string device;  // "cuda:0"; the same name may be another GPU elsewhere
  std::string uuid;    // of the GPU; "": none, or shared knowingly
};

// Texts without line breaks.
std::string FormatGpuPlace(const GpuPlace& place);
absl::StatusOr<GpuPlace> ParseGpuPlace(int rank, absl::string_view text);

// InvalidArgument names two ranks on one GPU, the GPU, and what to do.
absl::Status CheckGpuPlaces(const std::vector<GpuPlace>& places);

// This process's place: its host, and the GPU's identity as the driver tells
// it. A CPU has none.
GpuPlace PlaceOf(int rank, c10::Device device);

// CheckGpuPlaces over all ranks of the job: rank 0 compares, and tells all.
// Collective; blocks. Throws what the store throws.
absl::Status CheckGpusOfAllRanks(c10d::Store& store, const GpuPlace& own,
                                 int world_size);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_GPU_PLACES_H_
