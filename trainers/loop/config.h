// What a training run does. Filled from flags by trainers/flags.h;
// libraries only read it.
#ifndef RANKWISE_TRAINERS_LOOP_CONFIG_H_
#define RANKWISE_TRAINERS_LOOP_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>

#include "trainers/models/model.h"
#include "trainers/peak/device_peak.h"

namespace rankwise {

// Of the forward pass's matrix products and convolutions (autocast); parameters
// are always fp32.
enum class Precision { kFp32, kBf16, kFp16 };

// As the flag spells it.
constexpr const char* PrecisionName(Precision precision) {
  constexpr const char* kNames[] = {"fp32", "bf16", "fp16"};
  return kNames[static_cast<int>(precision)];
}

// What a run does once its loss, its gradients' norm or its parameters are not
// finite numbers.
enum class OnNan { kStop, kContinue };

struct DataConfig {
  std::string dataset;   // one of DatasetNames(); empty: the model's own
  std::string data_dir;  // folder of the dataset's files, or its file; absolute
  int64_t train_size = 50000;  // examples of a generated dataset
  int64_t test_size = 10000;
  int64_t batch_size = 64;        // examples per rank and micro-batch
  int64_t global_batch_size = 0;  // per step, sets batch_size; 0: unused
  bool drop_last = false;  // leave out the sampler's tail instead of padding it
  int workers = 1;  // loader threads per rank; 0: load in the training thread
};

struct OptimizerConfig {
  std::string name;          // adam, adamw, sgd; empty: the model's own
  double learning_rate = 0;  // 0: the model's own
  // Added to the gradient, as in torch.optim.Adam and SGD; of adamw, taken from
  // the weight.
  double weight_decay = 0;
  double momentum = 0;        // sgd only
  bool nesterov = false;      // sgd only: momentum as Nesterov's
  double clip_grad_norm = 0;  // largest 2-norm of all gradients; 0: none
  int64_t warmup_steps = 0;   // linear from 0 to the learning rate
  std::string lr_schedule = "constant";  // or cosine, to 0 at the last step
};

struct CheckpointConfig {
  std::string dir;  // absolute; empty: no checkpoints
  // In addition to the end of each epoch; both 0: only then.
  int64_t every_steps = 0;
  double every_seconds = 0;
  // There is something new to save only after steps whose number is a multiple
  // of this, and at the end of each epoch.
  int64_t multiple_of_steps = 1;
  bool async = false;  // a thread writes while training continues
  int keep = 3;
  bool resume = false;
  int max_restarts = 0;  // by our own launcher
};

// What a few steps did, as a picture.
struct TraceConfig {
  std::string file;        // absolute; empty: none
  int64_t steps = 5;       // after the first two, which warm up
  bool operators = false;  // PyTorch's operators and the device's kernels, too
};

struct OutputConfig {
  std::string record_file;    // JSON lines, absolute; empty: none
  int64_t log_every = 100;    // batches between two lines of rank 0
  bool show_progress = true;  // the bar on a terminal
  // What --peak_tflops states of one rank's device in the precision used, in
  // 1e12 FLOP/s without sparsity; 0: nothing.
  double peak_tflops = 0;
  // What the run is held against: as stated, or else as measured.
  DevicePeak peak;
  // What each rank holds, by kind, is measured and goes to the records.
  bool memory = false;
  bool dry_run = false;       // only says what the ranks would hold
  int64_t traffic_steps = 0;  // whose communication is recorded; 0: none
  TraceConfig trace;
};

// The command line as records and checkpoints keep it: values by name, without
// dashes.
struct FlagValues {
  std::map<std::string, std::string> all;  // defaults included
  // What a resumed run must repeat: flags that change the losses, with what the
  // model decides where they are silent.
  std::map<std::string, std::string> losses;
  // Of those, the flags' defaults.
  std::map<std::string, std::string> loss_defaults;
  // What runs of one study must share: flags that neither follow the world size
  // nor only say what is written where.
  std::map<std::string, std::string> scaling;
};

struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  CheckpointConfig checkpoint;
  OutputConfig output;
  int64_t epochs = 5;
  int64_t max_steps = 0;   // optimizer steps of the whole run; 0: all epochs
  int64_t accumulate = 1;  // micro-batches per optimizer step
  bool evaluate = true;    // after each epoch, on the whole test set
  uint64_t seed = 0;       // of the initial weights, the data and the sampler
  Precision precision = Precision::kFp32;
  OnNan on_nan = OnNan::kStop;
  // Lets GPUs round what enters fp32 matrix products and convolutions to TF32's
  // 10 bits of fraction.
  bool tf32 = false;
  bool cuda_graph = false;  // steps as one launch of a graph each
  int threads = 0;          // intra-op threads per rank; 0: cores / local ranks
  int64_t check_divergence_every = 0;  // steps between two checks; 0: never
  // For comparison: ranks compute as usual and exchange nothing. Without
  // evaluation and checkpoints.
  bool skip_communication = false;
  FlagValues flags;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_CONFIG_H_
