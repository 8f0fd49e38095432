"""The training cases, common to all frameworks."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Work:
    """One training run of SimpleCNN on images, in any framework."""

    data_dir: str
    world_size: int  # 0: one process without DDP
    batch_size: int  # per rank
    threads: int  # per rank
    max_steps: int  # 0: an epoch, with its evaluation
    precision: str = "fp32"
    optimizer: str = "adam"
    lr: float = 1e-3
    seed: int = 0
    start: str = ""  # start.py's file, for frameworks that cannot draw PyTorch's numbers

    unit = "images"
    model = "cnn"
    stages = 1
    data_parallel = ""
    loss_bound = None  # parity.py has those of images

    def shared_flags(self):
        return [f"--data_dir={self.data_dir}", f"--batch_size={self.batch_size}",
                f"--threads={self.threads}", f"--max_steps={self.max_steps}",
                f"--precision={self.precision}", f"--optimizer={self.optimizer}",
                f"--lr={self.lr}", f"--seed={self.seed}"] + ([] if self.max_steps else ["--epochs=1"])

    def readers(self):
        """Returns the number of ranks that read different examples."""
        return max(self.world_size, 1)

    def examples_per_reader(self):
        return self.batch_size

    def units_per_step(self):
        return self.batch_size * self.readers()

    def batch(self):
        return f"{self.batch_size} images a rank"

    def trainer(self):
        return "ddp" if self.world_size else "single"

    def rankwise_command(self, trainers):
        command = [trainers[self.trainer()], "--dataset=cifar10", *self.shared_flags()]
        return command + ([f"--nproc={self.world_size}"] if self.world_size else [])


@dataclasses.dataclass(frozen=True)
class GptWork:
    """A run of the smallest gpt on text, whose layers are divided among the ranks of each stage, or which
    data-parallel ranks train."""

    data_dir: str  # a text file
    world_size: int
    batch_size: int  # sequences per micro-batch; data-parallel: per rank
    max_steps: int
    stages: int = 1
    micro_batches: int = 1  # per optimizer step; 1 without stages
    sequence_parallel: bool = False
    data_parallel: str = ""  # "fsdp", "ddp": the trainer; "" otherwise
    threads: int = 1  # per rank
    lr: float = 1e-3
    seed: int = 0
    start: str = ""

    unit = "tokens"
    model = "gpt"
    optimizer = "adam"
    loss_bound = 1e-4  # rounding, which Adam magnifies
    sequence_tokens = 128

    def shared_flags(self):
        flags = [f"--data_dir={self.data_dir}", f"--batch_size={self.batch_size}",
                 f"--threads={self.threads}", f"--max_steps={self.max_steps}",
                 f"--lr={self.lr}", f"--seed={self.seed}"]
        if self.stages > 1:
            flags += [f"--pp={self.stages}", f"--microbatches={self.micro_batches}"]
        return flags + (["--sequence_parallel"] if self.sequence_parallel else [])

    def readers(self):
        return self.world_size if self.data_parallel else 1

    def examples_per_reader(self):
        return self.micro_batches * self.batch_size

    def units_per_step(self):
        return self.readers() * self.examples_per_reader() * self.sequence_tokens

    def batch(self):
        sequences = f"{self.batch_size} sequences of {self.sequence_tokens} tokens"
        if self.data_parallel:
            return f"{sequences} a rank"
        return f"{self.micro_batches} x {sequences}" if self.stages > 1 else sequences

    def trainer(self):
        return self.data_parallel or ("hybrid" if self.stages > 1 else "tensor_parallel")

    def rankwise_command(self, trainers):
        command = [trainers[self.trainer()], f"--model={self.model}", "--dataset=text",
                   "--eval=false", *self.shared_flags()]
        command += [f"--nproc={self.world_size}"] if self.world_size else []
        if self.data_parallel == "fsdp":
            return command + ["--zero=3"]
        if self.stages == 1:
            return command
        return command + [f"--tp={self.world_size // self.stages}", "--schedule=1f1b",
                          "--split=flops", "--tied_head=false"]


@dataclasses.dataclass(frozen=True)
class LlamaWork(GptWork):
    """A run of a Llama on text: in one process (world_size 0), or on ranks that divide its layers or train on
    different data."""

    model_size: str = "nano"
    precision: str = "fp32"

    model = "llama"
    optimizer = "adamw"

    @property
    def sequence_tokens(self):
        return {"nano": 128, "mini": 256}[self.model_size]

    @property
    def loss_bound(self):
        return {"fp32": 1e-4, "bf16": 1e-2}[self.precision]  # rounding, which Adam magnifies

    def shared_flags(self):
        return [*super().shared_flags(), f"--model_size={self.model_size}", f"--precision={self.precision}"]

    def trainer(self):
        return self.data_parallel or ("tensor_parallel" if self.world_size else "single")

    def rankwise_command(self, trainers):
        return [*super().rankwise_command(trainers), "--optimizer=adamw", "--weight_decay=0.01"]


@dataclasses.dataclass(frozen=True)
class PipelineWork:
    """A run of an mlp of equal layers in a pipeline of two stages, or on one rank. Needs no files."""

    batch_size: int  # examples per micro-batch
    max_steps: int
    schedule: str = "1f1b"  # or "zero_bubble": the framework's schedule of that kind
    world_size: int = 2
    micro_batches: int = 8  # per optimizer step
    threads: int = 1  # per rank
    depth: int = 15  # hidden layers, in addition to the output layer
    width: int = 768
    seed: int = 0
    data_dir: str = ""
    start: str = ""

    unit = "examples"
    model = "mlp"
    optimizer = "sgd"
    stages = 2
    data_parallel = ""
    loss_bound = 1e-4  # rounding

    def shared_flags(self):
        return [f"--batch_size={self.batch_size}", f"--threads={self.threads}",
                f"--max_steps={self.max_steps}", f"--depth={self.depth}", f"--width={self.width}",
                f"--classes={self.width}", "--lr=0.01", f"--seed={self.seed}"]

    def readers(self):
        return 1

    def examples_per_reader(self):
        return self.micro_batches * self.batch_size

    def units_per_step(self):
        return self.examples_per_reader()

    def batch(self):
        return f"{self.micro_batches} x {self.batch_size} examples"

    def trainer(self):
        return "single" if self.world_size == 1 else "pipeline"

    def rankwise_command(self, trainers):
        command = [trainers[self.trainer()], "--model=mlp", f"--input_width={self.width}",
                   f"--train_size={self.max_steps * self.units_per_step()}", "--eval=false",
                   "--optimizer=sgd", *self.shared_flags()]
        if self.world_size == 1:
            return command + [f"--accumulate={self.micro_batches}"]
        schedule = {"1f1b": "1f1b", "zero_bubble": "zero_bubble_h2"}[self.schedule]
        return command + [f"--nproc={self.world_size}", f"--schedule={schedule}",
                          f"--microbatches={self.micro_batches}"]


CASES = {
    "fp32": (Work, {"world_size": 0}),
    "bf16": (Work, {"world_size": 0, "precision": "bf16"}),
    "ddp": (Work, {"world_size": 2, "threads": 1}),
    "epoch_fp32": (Work, {"world_size": 0, "max_steps": 0}),
    "epoch_bf16": (Work, {"world_size": 0, "max_steps": 0, "precision": "bf16"}),
    "tp": (GptWork, {"world_size": 2, "batch_size": 8}),
    "tp_sequence": (GptWork, {"world_size": 2, "batch_size": 8, "sequence_parallel": True}),
    "pp_tp": (GptWork, {"world_size": 4, "stages": 2, "batch_size": 2, "micro_batches": 8}),
    "fsdp": (GptWork, {"world_size": 2, "batch_size": 8, "data_parallel": "fsdp"}),
    "llama_fp32": (LlamaWork, {"world_size": 0, "batch_size": 8, "model_size": "mini"}),
    "llama_bf16": (LlamaWork, {"world_size": 0, "batch_size": 8, "model_size": "mini", "precision": "bf16"}),
    "llama_ddp": (LlamaWork, {"world_size": 2, "batch_size": 8, "data_parallel": "ddp"}),
    "llama_fsdp": (LlamaWork, {"world_size": 2, "batch_size": 8, "data_parallel": "fsdp"}),
    "llama_tp": (LlamaWork, {"world_size": 2, "batch_size": 8}),
} | {
    f"{schedule}_{batch_size}": (PipelineWork, {"batch_size": batch_size, "schedule": schedule})
    for schedule in ("1f1b", "zero_bubble") for batch_size in (32, 64, 128)
}
# Cases that share a table.
TABLES = (("fp32", "bf16", "ddp"), ("epoch_fp32", "epoch_bf16"), ("tp", "tp_sequence", "pp_tp"), ("fsdp",),
          tuple(name for name, (kind, _) in CASES.items() if kind is LlamaWork),
          tuple(name for name, (kind, _) in CASES.items() if kind is PipelineWork))
