// The rules of all trainers' flags. Conditions on more than the flags, such as
// the model or the number of ranks, are checked where these are known.

#include <cstdint>

#include "trainers/flag_rules.h"

namespace rankwise {
namespace {

// An epoch's permutation holds 8 bytes per example.
constexpr double kMostExamples = 1e9, kMostEpochs = 1e9;
constexpr double kMostMicroBatches = 1 << 20;
constexpr double kMostRanks = 1 << 20;
constexpr double kLeastMebibytes = 1e-6, kMostMebibytes = 1 << 20;

constexpr const char* kSimulated =
    "simulated ranks exchange no activations or gradients "
    "(//parallel/pipeline:show simulates a schedule)";
constexpr const char* kNotTogether =
    "its ranks do not take every step together; use the trainer ddp";
constexpr const char* kOneProcess = "it is one process; use the trainer ddp";

constexpr FlagRule kRules[] = {
    // Model and data.
    InRange("train_size", 1, kMostExamples),
    InRange("test_size", 1, kMostExamples),
    InRange("batch_size", 1, kMostExamples),
    InRange("global_batch_size", 0, kMostExamples),
    InRange("data_workers", 0, 64),
    Needs("model_config", "model=llama"),
    Needs("init_from", "model=llama"),
    Excludes("model_size", "model_config", "the file gives the size"),
    Excludes("model_size", "init_from", "its config.json gives the size"),

    // Training.
    InRange("epochs", 1, kMostEpochs),
    InRange("max_steps", 0, kMostSteps),
    InRange("accumulate", 1, kMostMicroBatches),
    OneOf("optimizer", "|adam|adamw|sgd"),
    InRange("lr", 0),
    InRange("weight_decay", 0),
    InRange("momentum", 0, 1),
    InRange("clip_grad_norm", 0),
    InRange("warmup_steps", 0, kMostSteps),
    OneOf("lr_schedule", "constant|cosine"),
    OneOf("precision", "fp32|bf16|fp16"),
    InRange("threads", 0, 1024),
    InRange("check_divergence_every", 0, kMostSteps),
    OneOf("on_nan", "stop|continue"),
    NotOf("nproc", "single|data_parallel", kOneProcess),
    NotOf("accumulate", "pipeline|hybrid",
          "it accumulates over its --microbatches"),
    OnlyOf("precision=fp16", "single|ddp|data_parallel",
           "the parts of a model would have to agree on every step's loss "
           "scale; use --precision=bf16"),
    OnlyOf("cuda_graph", "single|ddp",
           "elsewhere the host takes part in a step, which no graph captures"),
    Excludes("cuda_graph", "device=cpu", "it needs a GPU"),
    Excludes("tf32", "device=cpu", "it needs a GPU"),
    OnlyOf("check_divergence_every", "single|ddp|data_parallel",
           "other trainers have no replicas to compare"),
    OnlyOf("skip_communication", "ddp|pipeline|model_parallel",
           "other trainers' ranks cannot go on without each other's results, "
           "or communicate nothing"),
    Excludes("skip_communication", "checkpoint_dir",
             "the ranks do not hold a trained model"),
    Excludes("skip_communication", "check_divergence_every",
             "the ranks' parameters diverge"),
    NotOf("backend=fake", "pipeline|hybrid|model_parallel|parameter_server",
          kSimulated),
    Needs("backend=fake", "eval=false",
          "as simulated ranks cannot evaluate their part",
          /*unless=*/"skip_communication"),

    // Output.
    InRange("traffic_steps", 0, kMostSteps),
    InRange("trace_steps", 1, 1000),
    InRange("log_every", 1, kMostSteps),
    InRange("peak_tflops", 0),
    InRange("keep_checkpoints", 1, 1e6),
    InRange("max_restarts", 0, 1000),
    Needs("resume", "checkpoint_dir", "the folder to resume from"),
    Needs("max_restarts", "checkpoint_dir", "the folder to restart from"),
    Needs("checkpoint_every", "checkpoint_dir", "the folder to write to"),
    OneOf("export_dtype", "fp32|bf16|fp16"),
    Needs("export_dtype", "checkpoint_dir", "the folder to write to"),
    Needs("trace_ops", "trace", "the file to write to"),
    Needs("trace_steps", "trace", "the file to write to"),
    Needs("traffic_steps", "record", "the file to write to"),

    // ddp.
    OneOf("ddp", "reducer|simple"),
    OneOf("comm_hook", "none|fp16|bf16"),
    OneOf("all_reduce", "flat|hierarchical|auto"),
    InRange("bucket_cap_mb", kLeastMebibytes, kMostMebibytes),
    InRange("first_bucket_mb", kLeastMebibytes, kMostMebibytes),
    InRange("last_bucket_mb", 0, kMostMebibytes),
    Needs("bucket_cap_mb", "ddp=reducer"),
    Needs("first_bucket_mb", "ddp=reducer"),
    Needs("last_bucket_mb", "ddp=reducer"),
    Needs("comm_hook", "ddp=reducer"),
    Needs("gradient_as_bucket_view", "ddp=reducer"),
    Needs("find_unused_parameters", "ddp=reducer"),
    Needs("static_graph", "ddp=reducer"),
    Needs("broadcast_buffers", "ddp=reducer"),
    Excludes("comm_hook", "skip_communication", "no gradients travel"),
    Excludes("find_unused_parameters", "skip_communication",
             "ranks exchange the set of used parameters"),
    Excludes("find_unused_parameters", "cuda_graph",
             "the host reads the set of used parameters"),
    Excludes("last_bucket_mb", "find_unused_parameters",
             "buckets do not follow the order of the gradients then",
             /*unless=*/"static_graph"),

    // data_parallel.
    InRange("replicas", 0, 1024),
    OneOf("gather", "output|loss"),
    OneOf("replicate", "step|once"),
    Excludes("replicas", "devices", "--devices says how many there are"),

    // fsdp, and hybrid for the flags it shares.
    InRange("zero", 0, 3),
    NotOf("zero=0", "fsdp", "nothing would be sharded; use the trainer ddp"),
    InRange("prefetch", 0, 1 << 10),
    OneOf("param_dtype", "|fp32|bf16"),
    Needs("param_dtype=bf16", "precision=bf16"),
    InRange("shard_ranks", 0, kMostRanks),
    Needs("reduce_every_microbatch", "zero=2|3"),
    Needs("reduce_every_microbatch", "accumulate>1"),
    Excludes("offload_optimizer", "device=cpu", "it needs a GPU"),

    // pipeline, hybrid and tensor_parallel.
    InRange("pp", 0, kMostRanks),
    InRange("dp", 0, kMostRanks),
    InRange("cp", 1, kMostRanks),
    InRange("tp", 1, kMostRanks),
    InRange("chunks", 0, 1 << 20),
    InRange("microbatches", 1, kMostMicroBatches),
    InRange("tp_overlap", 1, 1024),
    OneOf("context", "ring|ulysses"),
    Needs("context=ulysses", "cp>1"),
    NotOf("devices", "hybrid",
          "the trainer pipeline runs a pipeline in one process"),

    // parameter_server.
    InRange("servers", 1, kMostRanks),
    InRange("local_steps", 1, int64_t{1} << 40),
    OneOf("outer", "average|nesterov|elastic"),
    InRange("outer_lr", 0, 100),
    InRange("outer_momentum", 0, 1),
    InRange("bucket_mb", kLeastMebibytes, kMostMebibytes),
    Needs("outer=nesterov|elastic", "local_steps>1"),
    Needs("outer_lr", "local_steps>1"),
    Needs("outer_momentum", "outer=nesterov"),
    NotOf("backend=nccl", "parameter_server",
          "it ends all ranks when one dies; use --backend=gloo, which workers "
          "with GPUs can use, too"),
    NotOf("dry_run", "parameter_server", kNotTogether),
    NotOf("memory", "parameter_server", kNotTogether),
    NotOf("trace", "parameter_server", kNotTogether),
    NotOf("traffic_steps", "parameter_server", kNotTogether),
};

}  // namespace

absl::Span<const FlagRule> TrainerRules() { return kRules; }

}  // namespace rankwise
