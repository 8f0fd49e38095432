// From the command line to a rank that trains: what every trainer's main does.
#ifndef RANKWISE_TRAINERS_MAIN_H_
#define RANKWISE_TRAINERS_MAIN_H_

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

struct Trainer {
  const char* name = "";
  const char* usage = "";
  bool distributed = false;  // has a process group, of one rank too
  // Every rank or replica holds all of the model on one device, and runs it in
  // one go.
  bool whole_model = false;
  // The number of parameter servers: the first ranks of the job, which read no
  // training data. The job continues when other ranks fail. Null: none.
  int (*servers)() = nullptr;
  // Checks the trainer's own flags before any rank is started; may be null.
  absl::Status (*check_flags)() = nullptr;
  // The mesh of a job of that many ranks, as LayOutRanks takes it. Null: all
  // along dp.
  std::vector<MeshAxis> (*axes)(int world_size) = nullptr;
  // How a job of that many ranks divides the model; null: not at all.
  ModelSplit (*split)(int world_size) = nullptr;
  // How a run of `config` cuts the model into stages; null: not at all.
  PipelineConfig (*stages)(const TrainConfig& config) = nullptr;
  // What ranks along dp divide among them, without stages; null: nothing.
  ZeroConfig (*zero)() = nullptr;
  // Worker::devices; may be null.
  absl::StatusOr<std::vector<c10::Device>> (*devices)(int world_size) = nullptr;
  absl::Status (*run)(const TrainConfig& config,
                      const Worker& worker) = nullptr;
};

// Parses and checks the flags, starts --nproc ranks or finds this one's place,
// connects the ranks, runs. Returns main's exit code; errors are on stderr.
int TrainerMain(int argc, char** argv, const Trainer& trainer);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MAIN_H_
