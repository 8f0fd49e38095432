// The main function of every trainer, from the command line to a training rank.
#ifndef RANKWISE_TRAINERS_MAIN_H_
#define RANKWISE_TRAINERS_MAIN_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "parallel/comm/mesh.h"
#include "trainers/loop/config.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/loop/worker.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {

// Division of a job's work among its ranks, read alike by the launcher, each
// rank and --dry_run. By default ranks have the whole model and share the data.
struct Parallelism {
  // The mesh, as LayOutRanks takes it; if empty, all ranks are along dp.
  std::vector<MeshAxis> axes = {};
  ModelSplit split = {};                      // within each layer, by tp and cp
  std::optional<PipelineConfig> stages = {};  // into layers, by pp
  ZeroConfig zero = {};                       // by dp, without stages
  std::vector<c10::Device> devices = {};      // Worker::devices
  // The first `servers` ranks serve parameters and read no training data. The
  // job continues when other ranks fail.
  int servers = 0;

  bool divides_model() const {
    return stages.has_value() || zero.sharding.stage > 0 || split.tensor > 1;
  }
};

struct Trainer {
  const char* name = "";
  const char* usage = "";
  bool distributed = false;  // has a process group, even with one rank
  // Checks conditions that no rule (trainer_rules.cc) can express, before any
  // rank starts; may be nullptr.
  absl::Status (*check_flags)(const TrainConfig& config) = nullptr;
  // Divides a job of `world_size` ranks; nullptr for the default.
  absl::StatusOr<Parallelism> (*divide)(int world_size) = nullptr;
  absl::Status (*run)(const TrainConfig& config,
                      const Worker& worker) = nullptr;
};

// Parses and checks the flags, starts --nproc ranks or finds this process's
// rank, connects the ranks and runs. Returns main's exit code; errors go to
// stderr.
int TrainerMain(int argc, char** argv, const Trainer& trainer);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MAIN_H_
