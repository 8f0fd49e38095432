"""Reports to the comparison, common to all programs: time of the first step, step times and losses."""

import argparse
import json
import os
import statistics
import time

WARM_UP_STEPS = 10


def seconds_since_boot():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start(process="self"):
    """Returns the start time of this process or of a given pid, in seconds since boot."""
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def write_list(path, values):
    if path:
        with open(path, "w") as file:
            json.dump(values, file)


def run_parser(description):
    """Returns a parser of the flags that Report and all programs need."""
    flags = argparse.ArgumentParser(description=description.splitlines()[0])
    flags.add_argument("--max_steps", type=int, default=100)
    flags.add_argument("--lr", type=float, default=1e-3)
    flags.add_argument("--threads", type=int, default=1, help="per rank")
    flags.add_argument("--losses", metavar="FILE", help="step losses, a JSON list")
    flags.add_argument("--step_seconds", metavar="FILE", help="rank 0's step times, a JSON list")
    return flags


def parser(description):
    """Returns a parser for programs that read weights and the order of examples from start.py."""
    flags = run_parser(description)
    flags.add_argument("--data_dir", required=True)
    flags.add_argument("--start", required=True, help="what start.py wrote")
    return flags


class Report:
    """Report of one rank, launched by a process that started at `launched`."""

    def __init__(self, rank, launched):
        self.rank, self.launched = rank, launched
        self.losses, self.step_seconds, self.begin = [], [], time.perf_counter()

    def step_done(self, loss):
        now = time.perf_counter()
        self.step_seconds.append(now - self.begin)
        self.begin = now
        self.losses.append(loss)
        if len(self.losses) == 1 and self.rank == 0:
            elapsed = seconds_since_boot() - self.launched
            print(f"first step done after {elapsed:.3f} s", flush=True)

    def finish(self, args):
        """`args` are those of run_parser(); losses must be the same on all ranks."""
        if self.rank == 0:
            seconds = statistics.median(self.step_seconds[WARM_UP_STEPS:] or self.step_seconds)
            print(f"median step {1000 * seconds:.2f} ms", flush=True)
            write_list(args.step_seconds, self.step_seconds)
            write_list(args.losses, [float(loss) for loss in self.losses])
