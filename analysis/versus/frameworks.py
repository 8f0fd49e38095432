"""The compared programs: the C++ trainers, and a table with an entry per framework."""

import dataclasses
import pathlib
import sys
import typing

from runs import Result, find_params, read_json, read_steps, run_measured

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
TRAINERS = HERE.parent.parent / "trainers"
NOT_COMPARED = "not compared"  # the report omits this reason


def pytorch_command(work, python, program):
    torchrun = [python, "-m", "torch.distributed.run", "--standalone",
                f"--nproc_per_node={work.world_size}", program, *work.shared_flags()]
    if work.model == "gpt":
        return torchrun + (["--fsdp"] if work.data_parallel else [])
    if work.model == "llama" and work.world_size:
        return torchrun + [f"--mode={work.data_parallel or 'tp'}"]
    if work.model == "mlp":
        return torchrun + [f"--schedule={work.schedule}", f"--microbatches={work.micro_batches}"]
    command = [python, program, *work.shared_flags()]
    return command + (["--mode=ddp", f"--nproc={work.world_size}"] if work.world_size else [])


def started_command(work, python, program):
    """Returns the command of a program that reads start.py's file and has no launcher."""
    launcher = [str(PROGRAMS / "launch.py"), f"--nproc={work.world_size}"] if work.world_size else []
    command = [python, *launcher, program, f"--data_dir={work.data_dir}", f"--start={work.start}",
               f"--threads={work.threads}", f"--max_steps={work.max_steps}", f"--lr={work.lr}"]
    return command + ([f"--precision={work.precision}"] if work.model == "cnn" else [])


def jax_command(work, python, program):
    command = started_command(work, python, program)
    if work.model == "gpt":
        command += [f"--parallel={'fsdp' if work.data_parallel else 'tp'}"]
        command += ["--sequence_parallel"] if work.sequence_parallel else []
    return command


def deepspeed_command(work, python, program):
    return [python, "-m", "torch.distributed.run", "--standalone",
            f"--nproc_per_node={work.world_size}", program, *work.shared_flags()]


def can(_):
    return ""


def cannot_of_jax(work):
    if work.model == "llama":
        return NOT_COMPARED
    if not work.max_steps:
        return "its program does not evaluate"
    if work.stages > 1:
        return "JAX has no pipeline schedules; its guide to shard_map writes one by hand"
    return ""


def cannot_of_tensorflow(work):
    if work.model == "llama":
        return NOT_COMPARED
    if not work.max_steps:
        return "its program does not evaluate"
    if work.model != "cnn":
        return "the strategies of tf.distribute keep the whole model on every worker"
    return ""


def only_sharded(work):
    return "" if work.data_parallel == "fsdp" else NOT_COMPARED


def only_sharded_gpt(work):
    return only_sharded(work) if work.model == "gpt" else NOT_COMPARED


def only_pipelines(work):
    return "" if work.model == "mlp" else NOT_COMPARED


@dataclasses.dataclass(frozen=True)
class Framework:
    title: str
    environment: str  # name in environments.py
    programs: dict  # model -> file in programs/
    command: typing.Callable  # (work, python, program) -> command
    cannot: typing.Callable = can  # work -> why it is not supported, or ""
    needs_start: bool = False  # reads weights and the order of examples from start.py
    knows_exposed: bool = False  # reports the exposed communication of DDP
    flags: tuple = ()


FRAMEWORKS = {
    "pytorch": Framework("PyTorch", "pytorch", {"cnn": "pytorch_cnn.py", "gpt": "pytorch_gpt.py",
                                                  "llama": "pytorch_llama.py", "mlp": "pytorch_mlp.py"},
                         pytorch_command, knows_exposed=True),
    "jax": Framework("JAX", "jax", {"cnn": "jax_cnn.py", "gpt": "jax_gpt.py"}, jax_command,
                     cannot_of_jax, needs_start=True),
    "tensorflow": Framework("TensorFlow", "tensorflow", {"cnn": "tensorflow_cnn.py"}, started_command,
                            cannot_of_tensorflow, needs_start=True),
    "deepspeed": Framework("DeepSpeed", "deepspeed", {"gpt": "deepspeed_gpt.py"}, deepspeed_command,
                           only_sharded_gpt),
}


class PythonProgram:
    """The programs of one framework, run by `python`."""

    def __init__(self, framework, python=sys.executable):
        self.framework, self.python, self.title = framework, python, framework.title

    def cannot(self, work):
        return self.framework.cannot(work)

    def source(self, work):
        return PROGRAMS / self.framework.programs[work.model]

    def command(self, work):
        return [*self.framework.command(work, self.python, str(self.source(work))),
                *self.framework.flags]

    def run(self, work, folder, save_params=False, sample_memory=False):
        lists = ["losses", "step_seconds"]
        if work.trainer() == "ddp" and self.framework.knows_exposed:
            lists += ["exposed_seconds"]
        files = {flag: f"{folder}/{flag}" for flag in lists}
        if save_params:
            files["save_params"] = f"{folder}/model.safetensors"
        command = self.command(work) + [f"--{flag}={path}" for flag, path in files.items()]
        measured = run_measured(command, folder, sample_memory)
        values = {"exposed_seconds": []} | {flag: read_json(files[flag]) for flag in lists}
        return Result(**values, params_file=files.get("save_params", ""), **measured)


def tuned_pytorch():
    return dataclasses.replace(FRAMEWORKS["pytorch"], title="PyTorch tuned", flags=("--tuned",),
                               cannot=lambda work: "" if work.model in ("cnn", "llama") else NOT_COMPARED)


def compiled_pytorch():
    """On one rank, but not over an epoch, which would include compilation."""
    return dataclasses.replace(
        FRAMEWORKS["pytorch"], title="PyTorch compiled", flags=("--tuned", "--compile"),
        cannot=lambda work: NOT_COMPARED if work.model == "gpt" or work.world_size or not work.max_steps else "")


class Rankwise:
    """The C++ binaries by trainer name, with the user's additional flags at the end."""

    title = "rankwise"

    def __init__(self, trainers, extra_flags=()):
        self.trainers, self.extra_flags = trainers, list(extra_flags)

    def cannot(self, _):
        return ""

    def source(self, work):
        # The trainers with stages use the same step.
        has_stages = work.trainer() in ("pipeline", "hybrid")
        return TRAINERS / ("stages/mesh_trainer.cc" if has_stages else f"{work.trainer()}.cc")

    def run(self, work, folder, save_params=False, sample_memory=False):
        record = f"{folder}/record.jsonl"
        command = [*work.rankwise_command(self.trainers), "--device=cpu", f"--record={record}"]
        command += [f"--checkpoint_dir={folder}/checkpoints"] if save_params else []
        measured = run_measured(command + self.extra_flags, folder, sample_memory)
        params = find_params(f"{folder}/checkpoints") if save_params else ""
        return Result(**read_steps(record), params_file=params, **measured)


class RankwiseOther(Rankwise):
    """Another C++ trainer on the same work, for comparison."""

    def __init__(self, title, cannot, changes, *args):
        super().__init__(*args)
        self.title, self.cannot, self.changes = title, cannot, changes

    def source(self, work):
        return super().source(dataclasses.replace(work, **self.changes))

    def run(self, work, folder, **options):
        return super().run(dataclasses.replace(work, **self.changes), folder, **options)


def other_trainers(*args):
    """Compares sharding with replicated models, and a pipeline with one rank."""
    return [RankwiseOther("rankwise ddp", only_sharded, {"data_parallel": "ddp"}, *args),
            RankwiseOther("rankwise, 1 rank", only_pipelines, {"world_size": 1}, *args)]
