"""Measures the C++ trainers against the same programs in Python (train.py, train_gpt.py).

    bazel run //analysis:versus_pytorch
    bazel run //analysis:versus_pytorch -- --runs=3 --only=fp32,ddp

The two take turns, run by run, on made data. Prints a table in Markdown: medians over the runs. Exits non-zero
when losses of gpt differ by more than rounding makes. Memory comes from one more run of each, since sampling it costs time. Python is $RANKWISE_PYTHON,
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
from comparison import Case, loss_difference, table, too_different
from runs import GptWork, Pytorch, Rankwise, RankwiseDdp, Work

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
    unknown = set(names) - set(ALL_CASES)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{sorted(unknown)[0]!r} is none of {', '.join(ALL_CASES)}")
    return names


CASES = {
    "fp32": {"world_size": 0},
    "bf16": {"world_size": 0, "precision": "bf16"},
    "ddp": {"world_size": 2, "threads": 1},
}
GPT_CASES = {
    "tp": {"world_size": 2, "batch_size": 8},
    "tp_sequence": {"world_size": 2, "batch_size": 8, "sequence_parallel": True},
    "pp_tp": {"world_size": 4, "stages": 2, "batch_size": 2, "micro_batches": 8},
}
SHARDED_CASES = {
    "fsdp": {"world_size": 2, "batch_size": 8, "data_parallel": "fsdp"},
}
ALL_CASES = CASES | GPT_CASES | SHARDED_CASES
TRAINERS = ("single", "ddp", "fsdp", "tensor_parallel", "hybrid")


def parse_args():
    parser = argparse.ArgumentParser(prog="versus_pytorch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=5, help="of each program and case (5)")
    parser.add_argument("--only", type=case_names, default=list(ALL_CASES),
                        help=f"which of {','.join(ALL_CASES)} (all)")
    parser.add_argument("--steps", type=positive, default=100, help="optimizer steps a run (100)")
    parser.add_argument("--threads", type=positive, default=cores(),
                        help="of a run on one rank (all cores); others take 1 a rank")
    parser.add_argument("--with_tuned", action="store_true",
                        help="on images also PyTorch with channels-last and fused Adam")
    parser.add_argument("--data_dir", help="CIFAR-10 folder (a made one, in a temporary folder)")
    for name in TRAINERS:
        parser.add_argument(f"--{name}",
                            help=f"binary of //trainers:{name} (the one that Bazel built)")
    parser.add_argument("--extra_flag", action="append", default=[],
                        help="passed on to the C++ binaries, may be repeated")
    parser.add_argument("--out", help="also write every sample to this JSON file")
    return parser.parse_args()


def tell(text):
    print(text, file=sys.stderr, flush=True)


def make_data(python, script, path):
    tell(f"making data: {script}")
    subprocess.run([python, HERE / script, path], check=True)
    return path


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
    batches = ", ".join(f"{case.name} {case.work.batch()}" for case in cases)
    differences = ", ".join(f"{case.name} {loss_difference(case):.1e}" for case in cases)
    for names in (CASES, GPT_CASES, SHARDED_CASES):
        if of_kind := [case for case in cases if case.name in names]:
            print(f"\n{table(of_kind)}")
    print(f"\nPyTorch {version}; Adam, {args.steps} steps; {turns}.\nA step's batch: {batches}.\n"
          f"Largest difference between rankwise and PyTorch in the first steps' losses: "
          f"{differences}.", flush=True)


def make_works(args, python, folder):
    """The cases to run, by name, with data made where there is none."""
    works = {}
    if images := [name for name in args.only if name in CASES]:
        data = user_path(args.data_dir) if args.data_dir else make_data(
            python, "make_cifar10_folder.py", f"{folder}/cifar10")
        works |= {name: Work(**({"threads": args.threads} | CASES[name]), data_dir=data,
                             batch_size=64, max_steps=args.steps) for name in images}
    if texts := [name for name in args.only if name not in CASES]:
        data = make_data(python, "make_text.py", f"{folder}/text")
        works |= {name: GptWork(**ALL_CASES[name], data_dir=data, max_steps=args.steps)
                  for name in texts}
    return works


def compare(args, python, folder):
    works = make_works(args, python, folder)
    trainers = {name: user_path(getattr(args, name)) if getattr(args, name) else trainer(name)
                for name in {work.trainer() for work in works.values()} |
                ({"ddp"} if "fsdp" in works else set())}
    programs = [Rankwise(trainers, args.extra_flag), Pytorch(python=python)]
    tuned = [Pytorch("PyTorch tuned", tuned=True, python=python)] if args.with_tuned else []
    unsharded = [RankwiseDdp(trainers, args.extra_flag)]
    cases = []
    for name, work in works.items():
        more = tuned if name in CASES else unsharded if name in SHARDED_CASES else []
        cases.append(run_case(name, work, programs + more, args.runs))
        warn_of_late_lines(cases[-1])
    print_report(cases, args, python)
    if args.out:
        samples = {case.name: {program: [dataclasses.asdict(run) for run in runs]
                               for program, runs in case.results.items()} for case in cases}
        pathlib.Path(user_path(args.out)).write_text(json.dumps(samples))
    if too_different(cases):
        sys.exit("\n".join(too_different(cases)))


def main():
    args = parse_args()
    try:
        python = pytorch_python.find()
    except pytorch_python.NoPython as error:
        sys.exit(f"versus_pytorch: {error}")
    try:
        with tempfile.TemporaryDirectory(prefix="versus_pytorch.") as folder:
            compare(args, python, folder)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
