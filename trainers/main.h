// From the command line to a rank that trains: what every trainer's main does.
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

// How the ranks of a job divide the work. The launcher, each rank and --dry_run
// read it alike. By default every rank has the whole model and its share of the
// data.
struct Parallelism {
  // The mesh, as LayOutRanks takes it. Empty: all ranks along dp.
  std::vector<MeshAxis> axes = {};
  ModelSplit split = {};                      // of each layer, by tp and cp
  std::optional<PipelineConfig> stages = {};  // of layers, by pp
  ZeroConfig zero = {};                       // by dp, without stages
  std::vector<c10::Device> devices = {};      // Worker::devices
  // The first ranks of the job, which read no training data. The job continues
  // when other ranks fail.
  int servers = 0;

  bool divides_model() const {
    return stages.has_value() || zero.sharding.stage > 0 || split.tensor > 1;
  }
};

struct Trainer {
  const char* name = "";
  const char* usage = "";
  bool distributed = false;  // has a process group, even with one rank
  // Checks what no rule (trainer_rules.cc) can express, before any rank starts;
  // may be null.
  absl::Status (*check_flags)(const TrainConfig& config) = nullptr;
  // For a job of that many ranks; null: the default.
  absl::StatusOr<Parallelism> (*divide)(int world_size) = nullptr;
  absl::Status (*run)(const TrainConfig& config,
                      const Worker& worker) = nullptr;
};

// Parses and checks the flags, starts --nproc ranks or finds this one's place,
// connects the ranks, runs. Returns main's exit code; errors are on stderr.
int TrainerMain(int argc, char** argv, const Trainer& trainer);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MAIN_H_
