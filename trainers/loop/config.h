// Configuration of a training run. Binaries fill it from flags
// (trainers/flags.h); libraries only read it.
#ifndef RANKWISE_TRAINERS_LOOP_CONFIG_H_
#define RANKWISE_TRAINERS_LOOP_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>

#include "trainers/models/model.h"
#include "trainers/peak/device_peak.h"

namespace rankwise {

// Precision of the forward pass's matrix products and convolutions (autocast);
// parameters are always fp32.
enum class Precision { kFp32, kBf16, kFp16 };

// Returns the value of --precision.
constexpr const char* PrecisionName(Precision precision) {
  constexpr const char* kNames[] = {"fp32", "bf16", "fp16"};
  return kNames[static_cast<int>(precision)];
}

// Action once a loss, the gradient norm or a parameter is not finite.
enum class OnNan { kStop, kContinue };

struct DataConfig {
  std::string dataset;   // one of DatasetNames(); if empty, the model's default
  std::string data_dir;  // folder or file of the dataset; absolute
  int64_t train_size = 50000;  // examples of a generated dataset
  int64_t test_size = 10000;
  int64_t batch_size = 64;        // examples per rank and micro-batch
  int64_t global_batch_size = 0;  // per step, sets batch_size; 0 if unused
  bool drop_last = false;  // drop the sampler's tail instead of padding it
  int workers = 1;  // loader threads per rank; 0 to load in the training thread
};

struct OptimizerConfig {
  std::string name;          // adam, adamw, sgd; if empty, the model's default
  double learning_rate = 0;  // 0 for the model's default
  // Added to the gradient, as in torch.optim.Adam and SGD; adamw: decoupled.
  double weight_decay = 0;
  double momentum = 0;        // sgd only
  bool nesterov = false;      // sgd only: Nesterov momentum
  double clip_grad_norm = 0;  // largest 2-norm of all gradients; 0 if unlimited
  int64_t warmup_steps = 0;   // linear from 0 to the learning rate
  std::string lr_schedule = "constant";  // or cosine, to 0 at the last step
};

struct CheckpointConfig {
  std::string dir;  // absolute; empty without checkpoints
  // Intervals between saves, in addition to those at the end of each epoch; 0
  // if unused.
  int64_t every_steps = 0;
  double every_seconds = 0;
  // The state to save changes only after steps that are multiples of this, and
  // at the end of each epoch.
  int64_t multiple_of_steps = 1;
  bool async = false;  // write in a thread while training continues
  int keep = 3;
  bool resume = false;
  int max_restarts = 0;  // by rankwise's launcher
  // Type of the exported weights.
  c10::ScalarType export_type = c10::ScalarType::Float;
};

// A trace of a few steps.
struct TraceConfig {
  std::string file;        // absolute; empty without a trace
  int64_t steps = 5;       // after the first two, which warm up
  bool operators = false;  // also PyTorch's operators and the device's kernels
};

struct OutputConfig {
  std::string record_file;    // JSON lines, absolute; empty without records
  int64_t log_every = 100;    // batches between rank 0's log lines
  bool show_progress = true;  // progress bar on a terminal
  // --peak_tflops: dense peak of one rank's device in the precision used, in
  // 1e12 FLOP/s; 0 if not given.
  double peak_tflops = 0;
  // Reference peak of the run: the given one, otherwise the measured one.
  DevicePeak peak;
  // Measure each rank's memory by kind and record it.
  bool memory = false;
  bool dry_run = false;       // only print the ranks' computed memory
  int64_t traffic_steps = 0;  // steps with recorded communication
  TraceConfig trace;
};

// The command line as recorded and saved: values by name, without dashes.
struct FlagValues {
  std::map<std::string, std::string> all;  // including defaults
  // Values that a resumed run must repeat: flags that change the losses, with
  // the model's defaults for unset flags.
  std::map<std::string, std::string> losses;
  // Defaults of the flags in `losses`.
  std::map<std::string, std::string> loss_defaults;
  // Values that the runs of one study must share: flags that neither follow the
  // world size nor only choose destinations of output.
  std::map<std::string, std::string> scaling;
};

struct TrainConfig {
  ModelConfig model;
  // Absolute path of a Hugging Face folder with the initial weights of a llama;
  // empty for random weights.
  std::string init_from;
  DataConfig data;
  OptimizerConfig optimizer;
  CheckpointConfig checkpoint;
  OutputConfig output;
  int64_t epochs = 5;
  int64_t max_steps = 0;   // optimizer steps of the whole run; 0 for all epochs
  int64_t accumulate = 1;  // micro-batches per optimizer step
  bool evaluate = true;    // after each epoch, on the whole test set
  uint64_t seed = 0;       // seed of the initial weights, data and sampler
  Precision precision = Precision::kFp32;
  OnNan on_nan = OnNan::kStop;
  // Let GPUs round the inputs of fp32 matrix products and convolutions to
  // TF32's 10 bits of fraction.
  bool tf32 = false;
  bool cuda_graph = false;  // launch each step as one captured graph
  int threads = 0;  // intra-op threads per rank; 0 for cores / local ranks
  int64_t check_divergence_every = 0;  // steps between checks; 0 for none
  // For comparison: ranks compute as usual and exchange nothing. Without
  // evaluation and checkpoints.
  bool skip_communication = false;
  FlagValues flags;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_CONFIG_H_
