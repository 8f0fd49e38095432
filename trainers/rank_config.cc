#include "trainers/rank_config.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/training_data.h"
#include "trainers/models/model.h"
#include "trainers/observe/step_trace.h"
#include "trainers/resume/run_checkpoints.h"

namespace rankwise {
namespace {

int64_t MicroBatchesOf(const Trainer& trainer, const TrainConfig& config) {
  return trainer.stages == nullptr ? config.accumulate
                                   : trainer.stages(config).micro_batches;
}

}  // namespace

absl::StatusOr<MeshLayout> LayoutOf(const Trainer& trainer, int world_size) {
  if (trainer.axes == nullptr) {
    return LayOutRanks({{"dp", world_size}}, world_size);
  }
  return LayOutRanks(trainer.axes(world_size), world_size);
}

absl::StatusOr<TrainConfig> WithBatchSize(const Trainer& trainer,
                                          TrainConfig config, int dp_ranks) {
  const int64_t examples = config.data.global_batch_size;
  if (examples == 0) return config;
  const int64_t micro_batches = MicroBatchesOf(trainer, config);
  if (examples % (dp_ranks * micro_batches) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--global_batch_size=", examples, ": is not a multiple of ", dp_ranks,
        " data-parallel ranks x ", micro_batches, " micro-batches"));
  }
  config.data.batch_size = examples / (dp_ranks * micro_batches);
  const std::string typed = absl::StrCat(config.data.batch_size);
  config.flags.all["batch_size"] = config.flags.losses["batch_size"] = typed;
  return config;
}

absl::StatusOr<TrainConfig> ConfigOfRank(const Trainer& trainer,
                                         const TrainConfig& config,
                                         const MeshLayout& layout,
                                         int world_size) {
  const int servers = trainer.servers == nullptr ? 0 : trainer.servers();
  if (servers >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--servers=", servers, ": leaves no worker of ",
                     Counted(world_size, "rank"),
                     "; give --nproc=", servers + 1, " or more"));
  }
  ASSIGN_OR_RETURN(TrainConfig own,
                   WithBatchSize(trainer, config, layout.size("dp") - servers));
  if (trainer.split != nullptr) own.model.split = trainer.split(world_size);
  return own;
}

absl::Status CheckRanks(const Trainer& trainer, const TrainConfig& config,
                        int world_size) {
  Worker worker;
  worker.trainer = trainer.name;
  worker.env.world_size = world_size;
  ASSIGN_OR_RETURN(worker.layout, LayoutOf(trainer, world_size));
  ASSIGN_OR_RETURN(TrainConfig own,
                   ConfigOfRank(trainer, config, worker.layout, world_size));
  if (trainer.servers != nullptr)
    worker.readers = world_size - trainer.servers();
  own.data.workers = 0;
  own.accumulate = MicroBatchesOf(trainer, own);
  ASSIGN_OR_RETURN(const ModelSpec model, MakeModelSpec(own.model));
  ASSIGN_OR_RETURN(const TrainingData data,
                   OpenTrainingData(own, model, worker));
  const int64_t steps = TotalSteps(own, *data.train.loader);
  return own.checkpoint.resume ? CheckResume(own, steps, worker)
                               : StepTrace::Check(own.output.trace, steps);
}

}  // namespace rankwise
