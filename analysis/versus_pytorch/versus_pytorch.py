"""Measures the C++ trainers against the same program in Python (train.py).

    bazel run //analysis:versus_pytorch
    bazel run //analysis:versus_pytorch -- --runs=3 --only=fp32,ddp

The two take turns, run by run, on a made folder in CIFAR-10's format. Prints a table in Markdown: medians over
the runs. Memory comes from one more run of each, since sampling it costs time. Python is $RANKWISE_PYTHON,
or python3 where it has PyTorch 2.11, or one that is made once in the user's cache.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytorch_python
from comparison import Case, loss_difference, table
from runs import Pytorch, Rankwise, Work

HERE = pathlib.Path(os.path.abspath(__file__)).parent


def cores():
    return len(os.sched_getaffinity(0))


def user_path(path):
    """`bazel run` starts elsewhere; users mean the folder they typed in."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd()), path)


def trainer(name):
    """The binary in the runfiles, or of a build in this source tree."""
    for folder in (HERE.parent.parent, HERE.parent.parent / "bazel-bin"):
        path = folder / "trainers" / name
        if path.is_file():
            return str(path)
    sys.exit(f"versus_pytorch: no trainer `{name}` near {HERE}; start it by "
             f"`bazel run //analysis:versus_pytorch`, or name a binary by --{name}")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def case_names(text):
    names = text.split(",")
    unknown = set(names) - set(CASES)
    if unknown:
        raise argparse.ArgumentTypeError(f"{sorted(unknown)[0]!r} is none of {', '.join(CASES)}")
    return names


CASES = {
    "fp32": {"world_size": 0},
    "bf16": {"world_size": 0, "precision": "bf16"},
    "ddp": {"world_size": 2, "threads": 1},
}


def parse_args():
    parser = argparse.ArgumentParser(prog="versus_pytorch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=5, help="of each program and case (5)")
    parser.add_argument("--only", type=case_names, default=list(CASES),
                        help="which of fp32,bf16,ddp (all)")
    parser.add_argument("--steps", type=positive, default=100, help="optimizer steps a run (100)")
    parser.add_argument("--threads", type=positive, default=cores(),
                        help="of a run on one rank (all cores); DDP runs take 1 a rank")
    parser.add_argument("--with_tuned", action="store_true",
                        help="also PyTorch with channels-last and fused Adam")
    parser.add_argument("--data_dir", help="CIFAR-10 folder (a made one, in a temporary folder)")
    parser.add_argument("--single", help="binary of //trainers:single (the one that Bazel built)")
    parser.add_argument("--ddp", help="binary of //trainers:ddp (the one that Bazel built)")
    parser.add_argument("--extra_flag", action="append", default=[],
                        help="passed on to the C++ binaries, may be repeated")
    parser.add_argument("--out", help="also write every sample to this JSON file")
    return parser.parse_args()


def tell(text):
    print(text, file=sys.stderr, flush=True)


def make_data(python, folder):
    tell("making a folder in CIFAR-10's format")
    subprocess.run([python, HERE / "make_cifar10_folder.py", folder], check=True)
    return folder


def run_once(program, work, **options):
    with tempfile.TemporaryDirectory(prefix="versus_pytorch.") as folder:
        return program.run(work, folder, **options)


def run_case(name, work, programs, runs):
    """Results by program name; the last one of each is the memory run."""
    results = {program.name: [] for program in programs}
    for turn in range(runs + 1):
        for program in programs:
            tell(f"{name}: {program.name}, " +
                 ("memory" if turn == runs else f"run {turn + 1} of {runs}"))
            result = run_once(program, work, sample_memory=turn == runs)
            results[program.name].append(result)
    return Case(name, work, results)


def warn_of_late_lines(case):
    for name, runs in case.results.items():
        for run in runs[:-1]:
            late = run.first_step_seconds - run.reported_first_step_seconds
            if abs(late) > 0.2:
                tell(f"warning: {name} says that its first step was done {late:.2f} s before its "
                     "line arrived here; the arrival is what counts")


def print_report(cases, args, python):
    version, _ = pytorch_python.torch_of(python)
    turns = "one run of each" if args.runs == 1 else (
        f"medians of {args.runs} runs in turn, in brackets the lowest and highest ratio of two "
        "neighbouring runs")
    differences = ", ".join(f"{case.name} {loss_difference(case):.1e}" for case in cases)
    print(f"\n{table(cases)}\n\nPyTorch {version}; batch 64 a rank, Adam, {args.steps} steps; "
          f"{turns}.\nLargest difference between rankwise and PyTorch in the first steps' losses: "
          f"{differences}.", flush=True)


def compare(args, python, data_dir):
    programs = [Rankwise(user_path(args.single) if args.single else trainer("single"),
                         user_path(args.ddp) if args.ddp else trainer("ddp"), args.extra_flag),
                Pytorch(python=python)]
    programs += [Pytorch("PyTorch tuned", tuned=True, python=python)] if args.with_tuned else []
    cases = []
    for name in args.only:
        work = Work(**({"threads": args.threads} | CASES[name]), data_dir=data_dir, batch_size=64,
                    max_steps=args.steps)
        cases.append(run_case(name, work, programs, args.runs))
        warn_of_late_lines(cases[-1])
    print_report(cases, args, python)
    if args.out:
        samples = {case.name: {program: [dataclasses.asdict(run) for run in runs]
                               for program, runs in case.results.items()} for case in cases}
        pathlib.Path(user_path(args.out)).write_text(json.dumps(samples))


def main():
    args = parse_args()
    try:
        python = pytorch_python.find()
    except pytorch_python.NoPython as error:
        sys.exit(f"versus_pytorch: {error}")
    try:
        with tempfile.TemporaryDirectory(prefix="versus_pytorch.") as folder:
            data_dir = user_path(args.data_dir) if args.data_dir else make_data(python, folder)
            compare(args, python, data_dir)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
