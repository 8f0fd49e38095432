"""Runs a program, measures it from outside, and reads its own measurements."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import threading
import time

FIRST_STEP_LINE = re.compile(r"first step done after ([0-9.]+) s")


@dataclasses.dataclass
class Result:
    losses: list  # one per step, mean over ranks
    step_seconds: list  # rank 0's
    exposed_seconds: list  # per DDP step, mean over ranks; empty if the program cannot measure it
    first_step_seconds: float  # from launch to the arrival of the line that reports it
    reported_first_step_seconds: float
    whole_seconds: float  # from launch to the end of the process
    peak_pss_mib: float  # over the process tree, shared pages counted once; 0 if not sampled
    params_file: str  # safetensors; empty if not requested


def read_json(path):
    with open(path) as file:
        return json.load(file)


def read_steps(record):
    """Returns the part of a Result contained in the step records."""
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
    """Runs `command` to its end; returns the part of a Result measured from outside."""
    launched = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, start_new_session=True)
    try:
        with memory_sampler(process.pid) if sample_memory else contextlib.nullcontext([0]) as peak:
            output, observed, reported = follow(process.stdout, launched)
            process.wait()
            ended = time.monotonic()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
    pathlib.Path(folder, "output.txt").write_text(output)
    if process.returncode != 0 or observed is None:
        raise SystemExit(f"exit code {process.returncode} of: {' '.join(command)}\n{output[-4000:]}")
    return {"first_step_seconds": observed, "reported_first_step_seconds": reported,
            "whole_seconds": ended - launched, "peak_pss_mib": max(peak)}


def follow(stream, launched):
    """Returns the output of `stream`, and the time of the first step as observed here and as reported."""
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
