// --dry_run: what each rank would hold in memory, before any is started.
#ifndef RANKWISE_TRAINERS_DRY_RUN_H_
#define RANKWISE_TRAINERS_DRY_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "c10/core/DeviceType.h"
#include "trainers/loop/config.h"
#include "trainers/main.h"

namespace rankwise {

// A table of what the ranks of a job of `world_size` compute to, one row for
// those that hold the same, on devices of one type. Nothing is allocated; cuts
// by measured times (--split=time) are taken to be those by FLOPs. Fails as the
// ranks would.
absl::StatusOr<std::string> MemoryTable(const Trainer& trainer,
                                        const TrainConfig& config,
                                        int world_size, c10::DeviceType device);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DRY_RUN_H_
