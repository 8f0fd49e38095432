"""Runs the C++ trainers and the programs in Python on the same work, and reads back what they measured."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

FIRST_STEP_LINE = re.compile(r"first step done after ([0-9.]+) s")
HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Work:
    """One training run on images, whoever does it."""

    data_dir: str
    world_size: int  # 0: without DDP
    batch_size: int  # per rank
    threads: int  # per rank
    max_steps: int
    precision: str = "fp32"
    optimizer: str = "adam"
    lr: float = 1e-3
    seed: int = 0

    def shared_flags(self):
        return [f"--data_dir={self.data_dir}", f"--batch_size={self.batch_size}",
                f"--threads={self.threads}", f"--max_steps={self.max_steps}",
                f"--precision={self.precision}", f"--optimizer={self.optimizer}",
                f"--lr={self.lr}", f"--seed={self.seed}"]

    unit = "images"
    loss_bound = None  # parity.py has those of images

    def units_per_step(self):
        return self.batch_size * max(self.world_size, 1)

    def batch(self):
        return f"{self.batch_size} images a rank"

    def has_exposed_seconds(self):
        return self.world_size > 0

    def trainer(self):
        return "ddp" if self.world_size else "single"

    def rankwise_command(self, trainers):
        command = [trainers[self.trainer()], "--dataset=cifar10", *self.shared_flags()]
        return command + ([f"--nproc={self.world_size}"] if self.world_size else [])

    def pytorch_command(self, python, tuned):
        command = [python, str(HERE / "train.py"), *self.shared_flags()]
        command += ["--tuned"] if tuned else []
        return command + (["--mode=ddp", f"--nproc={self.world_size}"] if self.world_size else [])


@dataclasses.dataclass(frozen=True)
class GptWork:
    """One on text, of the smallest gpt, whose layers the ranks of each stage divide among them, or which
    data-parallel ranks train."""

    data_dir: str  # a text file
    world_size: int
    batch_size: int  # sequences per micro-batch; data-parallel: per rank
    max_steps: int
    stages: int = 1
    micro_batches: int = 1  # per optimizer step; 1 without stages
    sequence_parallel: bool = False
    data_parallel: str = ""  # "fsdp", "ddp": the trainer; empty: not
    threads: int = 1  # per rank
    lr: float = 1e-3
    seed: int = 0

    unit = "tokens"
    loss_bound = 1e-4  # rounding, which Adam magnifies
    sequence_tokens = 128

    def shared_flags(self):
        flags = [f"--data_dir={self.data_dir}", f"--batch_size={self.batch_size}",
                 f"--threads={self.threads}", f"--max_steps={self.max_steps}",
                 f"--lr={self.lr}", f"--seed={self.seed}"]
        if self.stages > 1:
            flags += [f"--pp={self.stages}", f"--microbatches={self.micro_batches}"]
        return flags + (["--sequence_parallel"] if self.sequence_parallel else [])

    def units_per_step(self):
        replicas = self.world_size if self.data_parallel else 1
        return replicas * self.micro_batches * self.batch_size * self.sequence_tokens

    def batch(self):
        sequences = f"{self.batch_size} sequences of {self.sequence_tokens} tokens"
        if self.data_parallel:
            return f"{sequences} a rank"
        return f"{self.micro_batches} x {sequences}" if self.stages > 1 else sequences

    def has_exposed_seconds(self):
        return False  # PyTorch has no figure to compare with

    def trainer(self):
        return self.data_parallel or ("hybrid" if self.stages > 1 else "tensor_parallel")

    def rankwise_command(self, trainers):
        command = [trainers[self.trainer()], "--model=gpt", "--dataset=text",
                   "--eval=false", f"--nproc={self.world_size}", *self.shared_flags()]
        if self.data_parallel == "fsdp":
            return command + ["--zero=3"]
        if self.stages == 1:
            return command
        return command + [f"--tp={self.world_size // self.stages}", "--schedule=1f1b",
                          "--split=flops", "--tied_head=false"]

    def pytorch_command(self, python, tuned):
        assert not tuned
        return [python, "-m", "torch.distributed.run", "--standalone",
                f"--nproc_per_node={self.world_size}", str(HERE / "train_gpt.py"),
                *self.shared_flags(), *(["--fsdp"] if self.data_parallel else [])]


@dataclasses.dataclass
class Result:
    losses: list  # one a step, mean over ranks
    step_seconds: list  # rank 0's
    exposed_seconds: list  # of DDP's steps, mean over ranks
    first_step_seconds: float  # from launch to the arrival of the line that says so
    reported_first_step_seconds: float
    peak_pss_mib: float  # over the process tree, shared pages counted once; 0 if not sampled
    params_file: str  # safetensors; empty if not asked for


class Pytorch:
    """The programs in Python, in this very environment or another."""

    def __init__(self, name="PyTorch", tuned=False, python=sys.executable):
        self.name, self.tuned, self.python = name, tuned, python

    def run(self, work, folder, save_params=False, sample_memory=False):
        lists = ["losses", "step_seconds"]
        lists += ["exposed_seconds"] if work.has_exposed_seconds() else []
        files = {flag: f"{folder}/{flag}" for flag in lists}
        if save_params:
            files["save_params"] = f"{folder}/model.safetensors"
        command = work.pytorch_command(self.python, self.tuned)
        command += [f"--{flag}={path}" for flag, path in files.items()]
        measured = run_measured(command, folder, sample_memory)
        values = {"exposed_seconds": []} | {flag: read_json(files[flag]) for flag in lists}
        return Result(**values, params_file=files.get("save_params", ""), **measured)


class Rankwise:
    """The C++ binaries, by their trainer's name, with flags of the reader's own at the end."""

    name = "rankwise"

    def __init__(self, trainers, extra_flags=()):
        self.trainers, self.extra_flags = trainers, list(extra_flags)

    def run(self, work, folder, save_params=False, sample_memory=False):
        record = f"{folder}/record.jsonl"
        command = [*work.rankwise_command(self.trainers), "--device=cpu", f"--record={record}"]
        command += [f"--checkpoint_dir={folder}/checkpoints"] if save_params else []
        measured = run_measured(command + self.extra_flags, folder, sample_memory)
        params = find_params(f"{folder}/checkpoints") if save_params else ""
        return Result(**read_steps(record), params_file=params, **measured)


class RankwiseDdp(Rankwise):
    """The same work by ranks that each keep the whole model: what sharding costs."""

    name = "rankwise ddp"

    def run(self, work, folder, **options):
        return super().run(dataclasses.replace(work, data_parallel="ddp"), folder, **options)


def read_json(path):
    with open(path) as file:
        return json.load(file)


def read_steps(record):
    """The part of a Result that the step records hold."""
    losses, exposed, step_seconds = {}, {}, []
    with open(record) as lines:
        for entry in map(json.loads, lines):
            if entry["kind"] != "step":
                continue
            losses.setdefault(entry["step"], []).append(float(entry["loss"]))
            exposed.setdefault(entry["step"], []).append(entry["exposed_comm_seconds"])
            if entry["rank"] == 0:
                step_seconds.append(entry["step_seconds"])
    return {"losses": means_by_step(losses), "exposed_seconds": means_by_step(exposed),
            "step_seconds": step_seconds}


def means_by_step(values):
    return [statistics.fmean(values[step]) for step in sorted(values)]


def find_params(folder):
    found = sorted(pathlib.Path(folder).glob("**/model*.safetensors"))
    if not found:
        raise SystemExit(f"the run wrote no model*.safetensors under its --checkpoint_dir {folder}")
    return str(found[-1])


def run_measured(command, folder, sample_memory):
    """Runs `command` to its end; returns the part of a Result that is seen from outside."""
    launched = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, start_new_session=True)
    try:
        with memory_sampler(process.pid) if sample_memory else contextlib.nullcontext([0]) as peak:
            output, observed, reported = follow(process.stdout, launched)
            process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    pathlib.Path(folder, "output.txt").write_text(output)
    if process.returncode != 0 or observed is None:
        raise SystemExit(f"exit code {process.returncode} of: {' '.join(command)}\n{output[-4000:]}")
    return {"first_step_seconds": observed, "reported_first_step_seconds": reported,
            "peak_pss_mib": max(peak)}


def follow(stream, launched):
    """All that `stream` says, and when the first step was done: as seen here, and as it says."""
    lines, observed, reported = [], None, None
    for line in stream:
        lines.append(line)
        match = FIRST_STEP_LINE.search(line)
        if match and observed is None:
            observed, reported = time.monotonic() - launched, float(match.group(1))
    return "".join(lines), observed, reported


@contextlib.contextmanager
def memory_sampler(root, period_seconds=0.05):
    """Samples the proportional set size (MiB) of `root` and its descendants into a list."""
    samples, done = [0.0], threading.Event()

    def sample():
        while not done.wait(period_seconds):
            samples.append(sum(pss_mib(pid) for pid in process_tree(root)))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def process_tree(root):
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = pathlib.Path("/proc", entry, "stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree


def pss_mib(pid):
    # A process may end between the listing and the reading.
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
