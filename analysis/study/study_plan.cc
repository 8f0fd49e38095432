#include "analysis/study/study_plan.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/text.h"

namespace rankwise {
namespace {

// Iterations of one launch share its placement and are not independent.
constexpr int64_t kBenchmarkLaunches = 3;

// Whether the trainer has tp and cp.
bool DividesLayers(const PlannedRun& run) {
  return run.trainer == "tensor_parallel" || run.trainer == "hybrid";
}

// Adds cells to a plan; equal ones are added once.
class Cells {
 public:
  Cells(const StudyConfig& config, StudyPlan& plan)
      : config_(config), plan_(plan) {
    for (const std::string& trainer : config.trainers) {
      if (trainer == "single") {
        AddBase();
        continue;
      }
      for (int64_t world_size : config.world_sizes) {
        if (IsNamed(trainer, world_size)) Add(trainer, world_size);
      }
    }
  }

  void AddOnce(const PlannedRun& run, int64_t repetitions) {
    plan_.cells.insert({run, repetitions});
  }

  // Must be called last: its cells depend on the others.
  void AddAuxiliary() {
    const std::map<PlannedRun, int64_t> main = plan_.cells;
    for (const auto& [run, repetitions] : main) {
      if (run.world_size == 1) continue;
      AddAblations(run);
      if (config_.comm_bench && !IsOneProcess(run.trainer))
        AddOnce({"comm_bench", run.world_size, 0},
                std::min(config_.repetitions, kBenchmarkLaunches));
    }
  }

 private:
  // Every trainer runs at every world size unless there are layouts.
  bool IsNamed(const std::string& trainer, int64_t world_size) const {
    return config_.layouts.empty() ||
           absl::c_any_of(config_.layouts, [&](const Layout& layout) {
             return TrainerOf(layout) == trainer && IsAt(layout, world_size);
           });
  }

  // The base case times its layers with the study's batch, or, if no run has
  // that batch, with the searched one.
  void AddBase() {
    PlannedRun base = {"single", 1, config_.batch_size};
    base.times_layers = true;
    for (const auto& scalings : {config_.scalings, config_.pipeline_scalings}) {
      const bool others = absl::c_any_of(scalings, [](Scaling scaling) {
        return scaling != Scaling::kFixedMemory;
      });
      if (others) AddOnce(base, config_.repetitions);
    }
    if (!SearchesMemory(config_)) return;
    base.times_layers = plan_.cells.count(base) == 0;
    plan_.searched.push_back(base);
  }

  void Add(const std::string& trainer, int64_t world_size) {
    if (trainer == "ddp" || IsOneProcess(trainer)) {
      AddScaled({trainer, world_size, config_.batch_size}, config_.scalings);
    } else if (trainer == "fsdp") {
      PlannedRun run = {trainer, world_size, config_.batch_size};
      for (int zero : config_.zero_stages) {
        run.zero = zero;
        AddScaled(run, config_.scalings);
      }
    } else if (world_size > 1 && trainer == "model_parallel") {
      AddIfItFits({trainer, world_size, config_.batch_size});
    } else if (world_size > 1 && trainer == "tensor_parallel") {
      AddScaled({trainer, world_size, config_.batch_size},
                config_.pipeline_scalings);
    } else if (world_size > 1 && trainer == "hybrid") {
      for (const Layout& layout : LayoutsOf(config_, world_size)) {
        AddHybrid(layout);
      }
    } else if (world_size > 1) {
      for (const std::string& schedule : config_.schedules) {
        AddIfItFits({.trainer = trainer,
                     .world_size = world_size,
                     .batch_size = config_.batch_size / config_.micro_batches,
                     .schedule = schedule,
                     .micro_batches = config_.micro_batches});
      }
    }
  }

  void AddHybrid(const Layout& layout) {
    PlannedRun run = {.trainer = "hybrid",
                      .world_size = layout.ranks(),
                      .micro_batches = MicroBatches(config_, layout),
                      .mesh = layout};
    run.batch_size = config_.batch_size / (run.micro_batches * layout.dp);
    if (layout.pp == 1) return AddScaled(run, config_.pipeline_scalings);
    for (const std::string& schedule : config_.schedules) {
      run.schedule = schedule;
      AddIfItFits(run);
    }
  }

  void AddIfItFits(const PlannedRun& run) {
    const int64_t ranks =
        run.trainer == "hybrid" ? run.mesh.pp : run.world_size;
    const int64_t stages = ranks * DefaultChunks(run.schedule);
    const int64_t layers = LayersOfModel(config_.model);
    if (layers == 0 || stages <= layers) {
      AddScaled(run, config_.pipeline_scalings);
      return;
    }
    plan_.not_run.push_back(
        absl::StrCat(run.TrainerName(), " x", run.world_size,
                     ": the model would be cut into ", stages, " stages, and ",
                     config_.model, " has ", Counted(layers, "layer")));
  }

  // `run` has config_.batch_size examples, in total or per rank.
  void AddScaled(const PlannedRun& run, const std::vector<Scaling>& scalings) {
    for (Scaling scaling : scalings) {
      PlannedRun scaled = run;
      if (scaling == Scaling::kFixedMemory) {
        plan_.searched.push_back(run);
        continue;
      }
      const bool strong = scaling == Scaling::kStrong;
      if (DividesBatch(run.trainer)) {
        scaled.batch_size /= strong ? run.world_size : 1;
      } else if (run.HasMicroBatches()) {
        scaled.micro_batches *= strong ? 1 : run.world_size;
      } else {
        scaled.batch_size *= strong ? 1 : run.world_size;
      }
      AddOnce(scaled, config_.repetitions);
    }
  }

  void AddAblations(PlannedRun run) {
    if (config_.ablations == 0) return;
    if (!run.schedule.empty() &&
        !absl::c_linear_search(config_.ablation_schedules, run.schedule)) {
      return;
    }
    if (absl::c_linear_search(config_.trainers, "single")) {
      AddOnce({"single", 1, run.batch_size}, config_.ablations);
    } else if (run.trainer == "ddp" &&
               absl::c_linear_search(config_.world_sizes, 1)) {
      AddOnce({"ddp", 1, run.batch_size}, config_.ablations);
    }
    // Ranks that divide a layer or its parameters need each other's parts, and
    // replicas of one process need the first one.
    if (DividesLayers(run) || run.trainer == "fsdp" ||
        IsOneProcess(run.trainer))
      return;
    run.skip_communication = true;
    AddOnce(run, config_.ablations);
  }

  const StudyConfig& config_;
  StudyPlan& plan_;
};

// Fisher-Yates shuffle: the order does not depend on the library.
void Shuffle(uint64_t seed, std::vector<PlannedRun>* runs) {
  std::mt19937_64 random(seed);
  for (size_t i = runs->size(); i > 1; --i) {
    std::swap((*runs)[i - 1], (*runs)[random() % i]);
  }
}

int64_t LargestGlobalBatch(const StudyConfig& config) {
  return std::max(config.largest_global_batch,
                  config.batch_size * LargestWorldSize(config));
}

// Examples of the largest step times the steps: one epoch suffices for every
// run, up to the trainers' limit of examples.
int64_t TrainSize(const StudyConfig& config) {
  constexpr int64_t kMostExamples = 1'000'000'000;
  if (config.train_size > 0) return config.train_size;
  return std::min(LargestGlobalBatch(config) * config.max_steps, kMostExamples);
}

// Enough epochs for every run, the same number for all.
int64_t Epochs(const StudyConfig& config) {
  const int64_t steps_an_epoch =
      std::max<int64_t>(1, TrainSize(config) / LargestGlobalBatch(config));
  return (config.max_steps + steps_an_epoch - 1) / steps_an_epoch;
}

// If the binary launches its own ranks.
void AddRanks(const StudyConfig& config, const PlannedRun& run,
              std::vector<std::string>* arguments) {
  if (run.trainer == "single" || !config.hosts.launcher.empty()) return;
  const char* flag = IsOneProcess(run.trainer) ? "--replicas=" : "--nproc=";
  arguments->push_back(absl::StrCat(flag, run.world_size));
}

// All-reduces for data parallelism, messages for pipelines; the ring keeps
// every link busy, the ping-pong one. Timed by the host's clock, as the cost
// models require: a GPU's events exclude the launch.
std::vector<std::string> CommBenchArguments(const StudyConfig& config,
                                            const PlannedRun& run,
                                            const std::string& record_path) {
  std::vector<std::string> arguments = {
      absl::StrCat("--record=", record_path),
      "--collectives=all_reduce,send_recv,ping_pong", "--min_bytes=8",
      "--max_bytes=16M",
      // A launch is one observation: several short ones give more information.
      "--max_seconds=0.1", "--timing=host",
      absl::StrCat("--threads=", ThreadsPerRank(config))};
  AddRanks(config, run, &arguments);
  for (const std::string& flag : config.trainer_flags) {
    if (absl::StartsWith(flag, "--backend=") ||
        absl::StartsWith(flag, "--device=")) {
      arguments.push_back(flag);
    }
  }
  return arguments;
}

bool RecordsTraffic(const PlannedRun& run) {
  return (DividesBatch(run.trainer) && !IsOneProcess(run.trainer)) ||
         DividesLayers(run);
}

// Adds the partition of the model over the trainer's ranks, and the batch.
void AddShape(const PlannedRun& run, std::vector<std::string>* arguments) {
  const auto add = [arguments](const char* flag, const auto& value) {
    arguments->push_back(absl::StrCat("--", flag, "=", value));
  };
  const bool hybrid = run.trainer == "hybrid";
  if (run.HasMicroBatches()) {
    add("pp", hybrid ? run.mesh.pp : run.world_size);
    add("dp", run.mesh.dp);
    add("microbatches", run.micro_batches);
  }
  if (hybrid) {
    add("cp", run.mesh.cp);
    add("tp", run.mesh.tp);
  }
  if (run.zero > 0) add("zero", run.zero);
  if (!run.schedule.empty()) {
    add("schedule", run.schedule);
    add("chunks", DefaultChunks(run.schedule));
  }
}

}  // namespace

std::string PlannedRun::TrainerName(const char* separator) const {
  std::string name = trainer;
  for (const std::string& part : {mesh.AxesName(), schedule}) {
    if (!part.empty()) absl::StrAppend(&name, separator, part);
  }
  if (zero > 0) absl::StrAppend(&name, separator, "zero", zero);
  return name;
}

std::string PlannedRun::Name() const {
  if (!IsTraining()) return absl::StrCat(trainer, " x", world_size);
  const std::string without =
      skip_communication ? ", without communication" : "";
  if (HasMicroBatches()) {
    return absl::StrCat(
        TrainerName(), " x", world_size, ", ", micro_batches,
        micro_batches == 1 ? " micro-batch of " : " micro-batches of ",
        batch_size, without);
  }
  return absl::StrCat(TrainerName(), " x", world_size, ", batch ", batch_size,
                      PartitionsModel(trainer) ? "" : " per rank", without);
}

std::string PlannedRun::CellStem() const {
  if (!IsTraining()) return absl::StrCat(trainer, "-x", world_size);
  return absl::StrCat(TrainerName("-"), "-x", world_size, "-batch",
                      HasMicroBatches() ? absl::StrCat(micro_batches, "x") : "",
                      batch_size, skip_communication ? "-nocomm" : "");
}

std::string PlannedRun::FileStem() const {
  return absl::StrCat(CellStem(), "-rep", repetition);
}

bool PlannedRun::operator<(const PlannedRun& other) const {
  const auto key = [](const PlannedRun& run) {
    return std::tuple(!run.IsTraining(), run.trainer != "single", run.trainer,
                      run.schedule, run.world_size, run.batch_size,
                      run.micro_batches, run.skip_communication, run.mesh,
                      run.zero);
  };
  return key(*this) < key(other);
}

int64_t PlannedRun::GlobalBatch() const {
  if (HasMicroBatches()) return batch_size * micro_batches * mesh.dp;
  return DividesBatch(trainer) ? batch_size * world_size : batch_size;
}

StudyPlan PlanStudy(const StudyConfig& config,
                    absl::Span<const PlannedRun> fixed_memory) {
  StudyPlan plan;
  Cells cells(config, plan);
  for (const PlannedRun& run : fixed_memory) {
    cells.AddOnce(run, config.repetitions);
  }
  cells.AddAuxiliary();
  // Ordered by repetition first, so that more repetitions of some cells do not
  // change the shuffled order of the others.
  const int64_t most = std::max(config.repetitions, config.ablations);
  for (int64_t repetition = 1; repetition <= most; ++repetition) {
    for (const auto& [run, repetitions] : plan.cells) {
      if (repetition > repetitions) continue;
      plan.runs.push_back(run);
      plan.runs.back().repetition = repetition;
      // Once per cell: it takes as long as 23 steps.
      plan.runs.back().times_layers = run.times_layers && repetition == 1;
    }
  }
  Shuffle(config.seed, &plan.runs);
  return plan;
}

std::vector<std::string> RunArguments(const StudyConfig& config,
                                      const PlannedRun& run,
                                      const std::string& record_path) {
  if (!run.IsTraining()) return CommBenchArguments(config, run, record_path);
  std::vector<std::string> arguments = {
      absl::StrCat("--record=", record_path),
      absl::StrCat("--batch_size=", IsOneProcess(run.trainer)
                                        ? run.GlobalBatch()
                                        : run.batch_size),
      absl::StrCat("--max_steps=", config.max_steps),
      absl::StrCat("--epochs=", Epochs(config)),
      absl::StrCat("--train_size=", TrainSize(config)),
      absl::StrCat("--threads=", ThreadsPerRank(config)),
      absl::StrCat("--seed=", config.seed),
      "--eval=false",
      "--memory=true"};
  AddRanks(config, run, &arguments);
  AddShape(run, &arguments);
  if (run.times_layers) arguments.push_back("--profile=true");
  if (run.skip_communication) {
    arguments.push_back("--skip_communication=true");
  } else if (RecordsTraffic(run) && config.traffic_steps > 0) {
    arguments.push_back(absl::StrCat("--traffic_steps=", config.traffic_steps));
  }
  arguments.insert(arguments.end(), config.trainer_flags.begin(),
                   config.trainer_flags.end());
  return arguments;
}

std::vector<std::string> RunCommandLine(const StudyConfig& config,
                                        const PlannedRun& run,
                                        const std::string& binary,
                                        const std::string& record_path) {
  std::vector<std::string> words =
      LaunchPrefix(config.hosts, run.world_size, ThreadsPerRank(config));
  words.push_back(binary);
  absl::c_move(RunArguments(config, run, record_path),
               std::back_inserter(words));
  return words;
}

}  // namespace rankwise
