"""Runs the C++ trainers and train.py on the same work, and reads back what they measured."""

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
TRAIN_PY = pathlib.Path(__file__).resolve().parent / "train.py"


@dataclasses.dataclass(frozen=True)
class Work:
    """One training run, whoever does it."""

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

    def images_per_step(self):
        return self.batch_size * max(self.world_size, 1)


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
    """train.py, in this very Python environment or another."""

    def __init__(self, name="PyTorch", tuned=False, python=sys.executable):
        self.name, self.tuned, self.python = name, tuned, python

    def run(self, work, folder, save_params=False, sample_memory=False):
        flags = ["losses", "step_seconds"] + (["exposed_seconds"] if work.world_size else [])
        files = {flag: f"{folder}/{flag}" for flag in flags}
        if save_params:
            files["save_params"] = f"{folder}/model.safetensors"
        command = [self.python, str(TRAIN_PY), *work.shared_flags()]
        command += [f"--{flag}={path}" for flag, path in files.items()]
        command += ["--tuned"] if self.tuned else []
        if work.world_size:
            command += ["--mode=ddp", f"--nproc={work.world_size}"]
        measured = run_measured(command, folder, sample_memory)
        lists = {"exposed_seconds": []} | {flag: read_json(files[flag]) for flag in flags}
        return Result(**lists, params_file=files.get("save_params", ""), **measured)


class Rankwise:
    """The C++ binaries, with flags of the reader's own at the end."""

    name = "rankwise"

    def __init__(self, single, ddp, extra_flags=()):
        self.single, self.ddp, self.extra_flags = single, ddp, list(extra_flags)

    def run(self, work, folder, save_params=False, sample_memory=False):
        record = f"{folder}/record.jsonl"
        command = [self.ddp if work.world_size else self.single, "--dataset=cifar10",
                   "--device=cpu", *work.shared_flags(), f"--record={record}"]
        command += [f"--nproc={work.world_size}"] if work.world_size else []
        command += [f"--checkpoint_dir={folder}/checkpoints"] if save_params else []
        measured = run_measured(command + self.extra_flags, folder, sample_memory)
        params = find_params(f"{folder}/checkpoints") if save_params else ""
        return Result(**read_steps(record), params_file=params, **measured)


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
