#include "trainers/flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/file_datasets.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
#include "trainers/huggingface/config_file.h"
#include "trainers/huggingface/model_config.h"
#include "trainers/models/model.h"
#include "trainers/peak_flag.h"

// Model and data.
TRAINER_FLAG(
    kLosses, std::string, model, "simple_cnn",
    "simple_cnn, simple_cnn_bn (with batch norm), linear, mp_mlp, mlp, "
    "gpt, llama or vit");
TRAINER_FLAG(
    kLosses, std::string, model_size, "",
    "size of gpt: nano, micro, mini, small or gpt2; of llama: nano, mini, "
    "llama3.2-1b, llama3.1-8b, llama3.1-70b, llama3.1-405b or qwen3-0.6b; of "
    "vit: nano, micro, tiny, small or base; if empty, nano");
TRAINER_FLAG(
    kLosses, int64_t, depth, 0,
    "hidden layers of mlp, blocks of gpt, llama or vit; if 0, the model's own");
TRAINER_FLAG(kLosses, int64_t, width, 0,
             "features between the layers of mlp, gpt, llama or vit; if 0, the "
             "model's own");
TRAINER_FLAG(kLosses, int64_t, input_width, 0,
             "features per example of mlp with --dataset=synthetic, instead of "
             "images; if 0, images");
TRAINER_FLAG(kLosses, int64_t, classes, 0, "output classes of mlp; if 0, 10");
TRAINER_FLAG(kLosses, int64_t, sequence_length, 0,
             "tokens per example of gpt or llama; if 0, the model's own");
TRAINER_FLAG(kLosses, double, dropout, 0, "dropout probability of gpt and vit");
TRAINER_FLAG(kLosses, int64_t, vocabulary, 0,
             "size of the vocabulary of gpt or llama; if 0, the model's own");
TRAINER_FLAG(kLosses, std::optional<bool>, tied_head, std::nullopt,
             "the output layer of gpt or llama shares the weights of the token "
             "embedding; if not given, the model's own (true for gpt)");
TRAINER_FLAG(kLosses, int64_t, heads, 0,
             "attention heads of llama; if 0, the model's own");
TRAINER_FLAG(kLosses, int64_t, kv_heads, 0,
             "key and value heads of llama, each used by an equal number of "
             "attention heads; if 0, the model's own");
TRAINER_FLAG(kLosses, int64_t, head_width, 0,
             "features of an attention head of llama; if 0, the model's own");
TRAINER_FLAG(kLosses, int64_t, ffn_width, 0,
             "hidden features of llama's MLP; if 0, the model's own");
TRAINER_FLAG(kLosses, std::optional<bool>, qk_norm, std::nullopt,
             "llama normalises the queries and keys of each head, as in Qwen3; "
             "if not given, the model's own");
TRAINER_FLAG(
    kLosses, double, norm_epsilon, 0,
    "added to the mean square in llama's norms; if 0, the model's own");
TRAINER_FLAG(kLosses, double, rope_theta, 0,
             "base of llama's rotary positions; if 0, the model's own");
TRAINER_FLAG(
    kLosses, std::string, rope_scaling, "",
    "Llama 3's scaling of the rotary frequencies: factor, low and high "
    "frequency factor, original tokens, such as 8,1,4,8192; if empty, "
    "the model's own");
TRAINER_FLAG(
    kLosses, std::string, model_config, "",
    "config.json of a Hugging Face LlamaForCausalLM or Qwen3ForCausalLM, which "
    "sets llama's dimensions; other flags override them; if empty, that of "
    "--init_from");
TRAINER_FLAG(
    kLosses, std::string, init_from, "",
    "Hugging Face folder (config.json, safetensors files) with llama's "
    "initial weights; if empty, random weights");
TRAINER_FLAG(
    kLosses, std::string, dataset, "",
    "synthetic, cifar10, linear, regression, tokens or text; if empty, the "
    "model's own");
TRAINER_FLAG(kLosses, std::string, data_dir, "",
             "folder of the dataset's files; for text, the file; for tokens, "
             "either, or if empty, tokens are generated");
TRAINER_FLAG(kLosses, int64_t, train_size, 50000,
             "training examples; a file dataset uses its first ones");
TRAINER_FLAG(kSpeed, int64_t, test_size, 10000, "test examples");
TRAINER_FLAG(kBatch, int64_t, batch_size, 64,
             "examples per rank and micro-batch");
TRAINER_FLAG(
    kLayout, int64_t, global_batch_size, 0,
    "examples per step over all ranks, instead of --batch_size; stays the "
    "same if a restart changes the number of ranks; if 0, not used");
TRAINER_FLAG(
    kLosses, bool, drop_last, false,
    "drop the examples that do not fill all ranks, instead of repeating some");
TRAINER_FLAG(kSpeed, int, data_workers, 1,
             "loader threads per rank; if 0, load in the training thread");

// Training.
TRAINER_FLAG(kSpeed, int64_t, epochs, 5, "passes over the training set");
TRAINER_FLAG(
    kSpeed, int64_t, max_steps, 0,
    "end after this number of optimizer steps; if 0, train all epochs");
TRAINER_FLAG(
    kBatch, int64_t, accumulate, 1,
    "micro-batches whose gradients are added up before each optimizer step");
TRAINER_FLAG(kLosses, std::string, optimizer, "",
             "adam, adamw or sgd; if empty, the model's own");
TRAINER_FLAG(kLosses, double, lr, 0, "learning rate; if 0, the model's own");
TRAINER_FLAG(
    kLosses, double, weight_decay, 0,
    "factor of the weight that is added to the gradient or, with adamw, times "
    "the learning rate, subtracted from the weight at each step");
TRAINER_FLAG(kLosses, double, momentum, 0, "momentum of sgd");
TRAINER_FLAG(kLosses, double, clip_grad_norm, 0,
             "largest 2-norm of all gradients together; if 0, no clipping");
TRAINER_FLAG(kLosses, int64_t, warmup_steps, 0,
             "steps over which the learning rate rises from 0");
TRAINER_FLAG(kLosses, std::string, lr_schedule, "constant",
             "learning rate after the warm-up: constant or cosine");
TRAINER_FLAG(kLosses, std::string, precision, "fp32",
             "fp32, or bf16 or fp16: forward under autocast; fp16 (single, ddp "
             "and data_parallel only) scales the loss and skips steps whose "
             "gradients overflow");
TRAINER_FLAG(
    kLosses, bool, tf32, false,
    "GPUs only: let fp32 matrix products and convolutions round their inputs "
    "to TF32 (without it neither does; by default PyTorch lets convolutions)");
TRAINER_FLAG(kSpeed, bool, cuda_graph, false,
             "GPUs only, single and ddp: capture a whole step in a CUDA graph "
             "after the first steps, and launch the graph from then on. "
             "If a step cannot be captured, it runs as before and the reason "
             "is printed");
TRAINER_FLAG(kLosses, uint64_t, seed, 0,
             "seed of the initial weights, the generated data and the sampler");
TRAINER_FLAG(kSpeed, bool, eval, true,
             "evaluate on the whole test set after each epoch");
TRAINER_FLAG(
    kSpeed, int64_t, check_divergence_every, 0,
    "steps between comparisons of the parameters across ranks; if 0, never");
TRAINER_FLAG(
    kOutput, std::string, on_nan, "stop",
    "stop: end all ranks with exit code 1 as soon as a loss, the gradient norm "
    "(with --clip_grad_norm) or, at a save, a parameter is not finite; "
    "continue: keep training. Parameters that are not finite are never saved");
TRAINER_FLAG(
    kLosses, bool, skip_communication, false,
    "compute as usual but exchange nothing, to show the cost of communication. "
    "The losses are not those of training; no evaluation");

// Output.
TRAINER_FLAG(
    kOutput, std::string, record, "",
    "file to append this run's records to, as JSON lines (docs/records.md)");
TRAINER_FLAG(kOutput, int64_t, traffic_steps, 0,
             "steps, from the third on, whose communication is also recorded "
             "in --record, for comm_bench to replay; if 0, none");
TRAINER_FLAG(
    kOutput, bool, memory, false,
    "measure a rank's memory by kind: parameters, gradients, optimizer state, "
    "unsharded buffers, activations (docs/memory.md)");
TRAINER_FLAG(kOutput, bool, dry_run, false,
             "only print the memory that each of --nproc ranks would need, "
             "without starting them or allocating it (docs/memory.md)");
TRAINER_FLAG(kOutput, std::string, trace, "",
             "file for a trace of all ranks over a few steps, for Perfetto or "
             "chrome://tracing (docs/tracing.md); if empty, none");
TRAINER_FLAG(kOutput, int64_t, trace_steps, 5,
             "steps recorded in --trace, from the third on");
TRAINER_FLAG(
    kOutput, bool, trace_ops, false,
    "also record PyTorch's operators and the GPU's kernels in --trace");
TRAINER_FLAG(kOutput, int64_t, log_every, 100,
             "steps between rank 0's log lines");
TRAINER_FLAG(
    kOutput, double, peak_tflops, 0,
    "peak of one rank's device in the precision used, in dense "
    "TFLOP/s, the reference of the MFU; if 0, the peak given by --peak");
TRAINER_FLAG(kOutput, bool, progress, true,
             "a progress bar where stdout is a terminal");
TRAINER_FLAG(kOutput, std::string, checkpoint_dir, "",
             "folder for checkpoints and model.safetensors; if empty, none");
TRAINER_FLAG(kOutput, std::string, export_dtype, "fp32",
             "type of the weights in model.safetensors: fp32, bf16 or fp16");
TRAINER_FLAG(
    kOutput, std::string, checkpoint_every, "0",
    "steps (200) or time (30s, 5m) between checkpoints, in addition to those "
    "at the end of each epoch; if 0, only those");
TRAINER_FLAG(kOutput, bool, async_checkpoint, true,
             "write checkpoints from a copy in memory while training "
             "continues");
TRAINER_FLAG(kOutput, int, keep_checkpoints, 3, "checkpoints to keep");
TRAINER_FLAG(kOutput, bool, resume, false,
             "continue from the newest checkpoint in --checkpoint_dir");
TRAINER_FLAG(kOutput, int, max_restarts, 0,
             "how many times the ranks of --nproc are restarted after a "
             "failure, from the newest checkpoint in --checkpoint_dir");

namespace rankwise {
namespace {

// Returns the values of all flags. `config` is complete except for its flags.
FlagValues ValuesOfFlags(const TrainConfig& config) {
  FlagValues values;
  values.all = FlagsOf("trainers/");
  for (const auto& [name, value] : values.all) {
    const FlagEffect effect = EffectOf(name);
    if (effect == FlagEffect::kLosses || effect == FlagEffect::kBatch) {
      values.losses[name] = value;
      values.loss_defaults[name] =
          absl::FindCommandLineFlag(name)->DefaultValue();
    }
    if (effect == FlagEffect::kLosses || effect == FlagEffect::kSpeed)
      values.scaling[name] = value;
  }
  values.losses["dataset"] = config.data.dataset;
  values.losses["optimizer"] = config.optimizer.name;
  values.losses["lr"] = absl::UnparseFlag(config.optimizer.learning_rate);
  values.losses["init_from"] = config.init_from;
  values.losses["model_config"] = UserPath(absl::GetFlag(FLAGS_model_config));
  // Image files are the same in every folder; text and token files differ.
  values.losses["data_dir"] =
      config.data.dataset == "cifar10" ? "" : config.data.data_dir;
  return values;
}

std::optional<RopeScaling> RopeScalingFromFlag(FlagChecks& checks) {
  const std::string text = absl::GetFlag(FLAGS_rope_scaling);
  if (text.empty()) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  RopeScaling scaling;
  if (parts.size() == 4 && absl::SimpleAtod(parts[0], &scaling.factor) &&
      absl::SimpleAtod(parts[1], &scaling.low_frequency_factor) &&
      absl::SimpleAtod(parts[2], &scaling.high_frequency_factor) &&
      absl::SimpleAtoi(parts[3], &scaling.original_tokens) &&
      scaling.factor >= 1 && scaling.low_frequency_factor > 0 &&
      scaling.high_frequency_factor > scaling.low_frequency_factor &&
      scaling.original_tokens > 0) {
    return scaling;
  }
  checks.Complain(absl::StrCat(
      "--rope_scaling=", text,
      ": must be a factor of at least 1, a low and a greater high frequency "
      "factor, and a number of tokens: 8,1,4,8192"));
  return std::nullopt;
}

ModelConfig ModelFromFlags(FlagChecks& checks) {
  return {.name = absl::GetFlag(FLAGS_model),
          .size = absl::GetFlag(FLAGS_model_size),
          .depth = absl::GetFlag(FLAGS_depth),
          .width = absl::GetFlag(FLAGS_width),
          .input_width = absl::GetFlag(FLAGS_input_width),
          .classes = absl::GetFlag(FLAGS_classes),
          .sequence_length = absl::GetFlag(FLAGS_sequence_length),
          .vocabulary = absl::GetFlag(FLAGS_vocabulary),
          .dropout = absl::GetFlag(FLAGS_dropout),
          .tied_head = absl::GetFlag(FLAGS_tied_head),
          .heads = absl::GetFlag(FLAGS_heads),
          .kv_heads = absl::GetFlag(FLAGS_kv_heads),
          .head_width = absl::GetFlag(FLAGS_head_width),
          .ffn_width = absl::GetFlag(FLAGS_ffn_width),
          .qk_norm = absl::GetFlag(FLAGS_qk_norm),
          .norm_epsilon = absl::GetFlag(FLAGS_norm_epsilon),
          .rope_theta = absl::GetFlag(FLAGS_rope_theta),
          .rope_scaling = RopeScalingFromFlag(checks)};
}

// Fills the fields of a llama that no flag sets, from --model_config or else
// from config.json in --init_from.
absl::Status FillFromFile(ModelConfig& model) {
  const std::string given = UserPath(absl::GetFlag(FLAGS_model_config));
  const std::string folder = UserPath(absl::GetFlag(FLAGS_init_from));
  if (model.name != "llama" || (given.empty() && folder.empty()))
    return absl::OkStatus();
  const auto file = ReadHuggingFaceConfig(
      given.empty() ? absl::StrCat(folder, "/config.json") : given);
  if (!file.ok()) {
    return Bad(given.empty() ? "--init_from: " : "--model_config: ",
               file.status().message());
  }
  FillModelConfig(*file, model);
  return absl::OkStatus();
}

DataConfig DataFromFlags(const ModelSpec& model, FlagChecks& checks) {
  DataConfig data{.dataset = absl::GetFlag(FLAGS_dataset),
                  .data_dir = UserPath(absl::GetFlag(FLAGS_data_dir)),
                  .train_size = absl::GetFlag(FLAGS_train_size),
                  .test_size = absl::GetFlag(FLAGS_test_size),
                  .batch_size = absl::GetFlag(FLAGS_batch_size),
                  .global_batch_size = absl::GetFlag(FLAGS_global_batch_size),
                  .drop_last = absl::GetFlag(FLAGS_drop_last),
                  .workers = absl::GetFlag(FLAGS_data_workers)};
  if (data.dataset.empty()) data.dataset = model.default_dataset;
  checks.OneOf("dataset", data.dataset, DatasetNames());
  if (!data.data_dir.empty() && !ReadsFiles(data.dataset)) {
    checks.Complain(absl::StrCat("--data_dir=", absl::GetFlag(FLAGS_data_dir),
                                 ": --dataset=", data.dataset,
                                 " reads no files; only --dataset=",
                                 absl::StrJoin(kFileDatasets, ", "), " do"));
  }
  return data;
}

OptimizerConfig OptimizerFromFlags(const ModelSpec& model, FlagChecks& checks) {
  OptimizerConfig optimizer{
      .name = absl::GetFlag(FLAGS_optimizer),
      .learning_rate = absl::GetFlag(FLAGS_lr),
      .weight_decay = absl::GetFlag(FLAGS_weight_decay),
      .momentum = absl::GetFlag(FLAGS_momentum),
      .clip_grad_norm = absl::GetFlag(FLAGS_clip_grad_norm),
      .warmup_steps = absl::GetFlag(FLAGS_warmup_steps),
      .lr_schedule = absl::GetFlag(FLAGS_lr_schedule)};
  if (optimizer.name.empty()) optimizer.name = model.default_optimizer;
  if (optimizer.learning_rate == 0)
    optimizer.learning_rate = model.default_learning_rate;
  // No rule can express this: the model may choose the optimizer.
  if (optimizer.momentum != 0 && optimizer.name != "sgd")
    checks.Complain(NeedsText("momentum", "optimizer=sgd", ""));
  return optimizer;
}

// Parses --checkpoint_every: steps, or a time with its unit.
void ReadInterval(CheckpointConfig& checkpoint, FlagChecks& checks) {
  const std::string text = absl::GetFlag(FLAGS_checkpoint_every);
  if (absl::SimpleAtoi(text, &checkpoint.every_steps) &&
      checkpoint.every_steps >= 0 && checkpoint.every_steps <= kMostSteps) {
    return;
  }
  checkpoint.every_steps = 0;
  absl::Duration time;
  if (absl::ParseDuration(text, &time) && time >= absl::Seconds(1) &&
      time < absl::InfiniteDuration()) {
    checkpoint.every_seconds = absl::ToDoubleSeconds(time);
    return;
  }
  checks.Complain(absl::StrCat(
      "--checkpoint_every=", text, ": must be between 0 and ", kMostSteps,
      " steps (200), or a time of at least 1s (30s, 5m)"));
}

// Returns fp32 for a value that a rule refuses.
c10::ScalarType ExportTypeFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_export_dtype);
  return name == "bf16"   ? c10::ScalarType::BFloat16
         : name == "fp16" ? c10::ScalarType::Half
                          : c10::ScalarType::Float;
}

CheckpointConfig CheckpointFromFlags(FlagChecks& checks) {
  CheckpointConfig checkpoint{
      .dir = UserPath(absl::GetFlag(FLAGS_checkpoint_dir)),
      .async = absl::GetFlag(FLAGS_async_checkpoint),
      .keep = absl::GetFlag(FLAGS_keep_checkpoints),
      .resume = absl::GetFlag(FLAGS_resume),
      .max_restarts = absl::GetFlag(FLAGS_max_restarts),
      .export_type = ExportTypeFromFlag()};
  ReadInterval(checkpoint, checks);
  checks.FolderOrNew("checkpoint_dir", checkpoint.dir);
  return checkpoint;
}

TraceConfig TraceFromFlags(FlagChecks& checks) {
  TraceConfig trace{.file = UserPath(absl::GetFlag(FLAGS_trace)),
                    .steps = absl::GetFlag(FLAGS_trace_steps),
                    .operators = absl::GetFlag(FLAGS_trace_ops)};
  checks.FileOrNew("trace", trace.file);
  const absl::Status replaceable =
      trace.file.empty() ? absl::OkStatus() : CheckReplaceable(trace.file);
  if (!replaceable.ok())
    checks.Complain(absl::StrCat("--trace: ", replaceable.message()));
  return trace;
}

OutputConfig OutputFromFlags(FlagChecks& checks) {
  OutputConfig output{.record_file = UserPath(absl::GetFlag(FLAGS_record)),
                      .log_every = absl::GetFlag(FLAGS_log_every),
                      .show_progress = absl::GetFlag(FLAGS_progress),
                      .peak_tflops = absl::GetFlag(FLAGS_peak_tflops),
                      .peak = {},  // set by each rank
                      .memory = absl::GetFlag(FLAGS_memory),
                      .dry_run = absl::GetFlag(FLAGS_dry_run),
                      .traffic_steps = absl::GetFlag(FLAGS_traffic_steps),
                      .trace = TraceFromFlags(checks)};
  checks.FileOrNew("record", output.record_file);
  CheckPeakFlag(checks);
  return output;
}

// Returns fp32 for a value that a rule refuses.
Precision PrecisionFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_precision);
  for (Precision precision : {Precision::kBf16, Precision::kFp16}) {
    if (name == PrecisionName(precision)) return precision;
  }
  return Precision::kFp32;
}

}  // namespace

absl::StatusOr<int> WorldSizeFromFlags() {
  if (absl::GetFlag(FLAGS_backend) == "fake")
    return FakeRankEnvFromFlags().world_size;
  if (!InsideLauncher()) return absl::GetFlag(FLAGS_nproc);
  ASSIGN_OR_RETURN(const RankEnv env, ReadRankEnv({.master_required = false}));
  return env.world_size;
}

absl::StatusOr<TrainConfig> TrainConfigFromFlags() {
  FlagChecks checks;
  TrainConfig config;
  config.model = ModelFromFlags(checks);
  RETURN_IF_ERROR(FillFromFile(config.model));
  config.init_from = UserPath(absl::GetFlag(FLAGS_init_from));
  ASSIGN_OR_RETURN(ModelSpec model, MakeModelSpec(config.model));
  config.data = DataFromFlags(model, checks);
  config.optimizer = OptimizerFromFlags(model, checks);
  config.checkpoint = CheckpointFromFlags(checks);
  config.output = OutputFromFlags(checks);
  config.epochs = absl::GetFlag(FLAGS_epochs);
  config.max_steps = absl::GetFlag(FLAGS_max_steps);
  config.accumulate = absl::GetFlag(FLAGS_accumulate);
  config.seed = absl::GetFlag(FLAGS_seed);
  config.threads = absl::GetFlag(FLAGS_threads);
  config.check_divergence_every = absl::GetFlag(FLAGS_check_divergence_every);
  config.skip_communication = absl::GetFlag(FLAGS_skip_communication);
  config.evaluate = absl::GetFlag(FLAGS_eval) && !config.skip_communication;
  config.precision = PrecisionFromFlag();
  config.on_nan = absl::GetFlag(FLAGS_on_nan) == "continue" ? OnNan::kContinue
                                                            : OnNan::kStop;
  config.tf32 = absl::GetFlag(FLAGS_tf32);
  config.cuda_graph = absl::GetFlag(FLAGS_cuda_graph);
  RETURN_IF_ERROR(checks.status());
  config.flags = ValuesOfFlags(config);
  return config;
}

}  // namespace rankwise
