"""Measures the C++ trainers against the same programs in PyTorch, JAX, TensorFlow and DeepSpeed.

    bazel run //analysis:versus
    bazel run //analysis:versus -- --runs=3 --only=fp32,ddp --frameworks=pytorch,jax

Programs alternate, run by run, on generated data. Prints tables in Markdown: medians over the runs. Exits
non-zero if losses of gpt differ by more than rounding explains. Memory is sampled in an additional run of each,
since sampling costs time. Each framework's Python environment is created once in the user's cache; PyTorch's may
be set by $RANKWISE_PYTHON.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import comparison
from comparison import Case
from environments import ENVIRONMENTS, NoPython, find, version_in
from frameworks import (FRAMEWORKS, NOT_COMPARED, PROGRAMS, PythonProgram, Rankwise, compiled_pytorch,
                        other_trainers, tuned_pytorch)
from works import CASES, TABLES

HERE = pathlib.Path(os.path.abspath(__file__)).parent
TRAINERS = ("single", "ddp", "fsdp", "tensor_parallel", "hybrid", "pipeline")


def lines_of(path):
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def quota_in(folder, version2):
    """Returns the cores allowed by the CPU quota in a control group's folder."""
    numbers = " ".join(line for name in (("cpu.max",) if version2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
                       for line in lines_of(f"{folder}/{name}")).split()
    try:
        quota, period = map(int, numbers)  # without a quota it is "max" or -1
    except ValueError:
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf


def cpu_quota(root=""):
    """Returns the lowest quota of this process's control groups and their ancestors, as in records/usable_resources.h."""
    quota = math.inf
    for mount in lines_of(f"{root}/proc/self/mountinfo"):
        place, kind = (half.split(" ") for half in mount.partition(" - ")[::2])
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version2 = kind[0] == "cgroup2"
        wanted = "" if version2 else "cpu"
        if not version2 and "cpu" not in kind[2].split(","):
            continue
        for line in lines_of(f"{root}/proc/self/cgroup"):
            number, controllers, group = (line.split(":", 2) + ["", ""])[:3]
            if wanted not in controllers.split(",") or version2 and number != "0":
                continue
            group = group.removeprefix(place[3]) if place[3] != "/" else group
            if not group.startswith("/") or "/.." in group:
                group = "/"
            for inner in (pathlib.PurePosixPath(group), *pathlib.PurePosixPath(group).parents):
                quota = min(quota, quota_in(f"{root}{place[4]}{inner}", version2))
    return quota


def cores():
    """Returns the cores of the affinity mask, limited by the CPU quota."""
    return max(1, math.floor(min(len(os.sched_getaffinity(0)), cpu_quota())))


def user_path(path):
    """Resolves `path` against the user's folder, as `bazel run` changes the folder."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd()), path)


def trainer(name):
    """Returns the binary in the runfiles, or of a build in this source tree."""
    for folder in (HERE.parent.parent, HERE.parent.parent / "bazel-bin"):
        path = folder / "trainers" / name
        if path.is_file():
            return str(path)
    sys.exit(f"versus: no trainer `{name}` near {HERE}; start it by "
             f"`bazel run //analysis:versus`, or name a binary by --{name}")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def names_of(known):
    def parse(text):
        names = text.split(",")
        unknown = set(names) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError(f"{sorted(unknown)[0]!r} is none of {', '.join(known)}")
        return names
    return parse


def parse_args():
    parser = argparse.ArgumentParser(prog="versus", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=5, help="runs of each program and case (5)")
    parser.add_argument("--only", type=names_of(CASES), default=list(CASES),
                        help=f"which of {','.join(CASES)} (all)")
    parser.add_argument("--frameworks", type=names_of(FRAMEWORKS), default=list(FRAMEWORKS),
                        help=f"which of {','.join(FRAMEWORKS)} (all)")
    parser.add_argument("--steps", type=positive, default=100, help="optimizer steps of a run, except of epochs (100)")
    parser.add_argument("--threads", type=positive, default=cores(),
                        help="threads of a run on one rank (all available cores); other runs use 1 per rank")
    parser.add_argument("--with_tuned", action="store_true",
                        help="on images and llama also PyTorch with fused Adam (on images also channels-last), "
                             "without and with torch.compile")
    parser.add_argument("--data_dir", help="CIFAR-10 folder (a generated one, in a temporary folder)")
    for name in TRAINERS:
        parser.add_argument(f"--{name}",
                            help=f"binary of //trainers:{name} (the one that Bazel built)")
    parser.add_argument("--extra_flag", action="append", default=[],
                        help="passed on to the C++ binaries, may be repeated")
    parser.add_argument("--out", help="also write every sample to this JSON file")
    args = parser.parse_args()
    if args.with_tuned and "pytorch" not in args.frameworks:
        parser.error("--with_tuned needs pytorch among the --frameworks")
    if args.data_dir and not os.path.isfile(os.path.join(user_path(args.data_dir), "data_batch_1.bin")):
        parser.error(f"--data_dir={args.data_dir}: holds no data_batch_1.bin; "
                     "give a folder of CIFAR-10's binary version")
    return args


def tell(text):
    print(text, file=sys.stderr, flush=True)


def run_script(python, script, *arguments):
    tell(f"making data: {script}")
    if subprocess.run([python, PROGRAMS / script, *arguments], check=False).returncode != 0:
        sys.exit(f"versus: {script} failed, see above")


def make_start(python, work, folder):
    """Writes the start file of programs that cannot draw PyTorch's random numbers."""
    path = f"{folder}/start-{work.model}-{work.readers()}-{work.examples_per_reader()}.npz"
    if not os.path.exists(path):
        run_script(python, "start.py", f"--model={work.model}", f"--data_dir={work.data_dir}",
                   f"--ranks={work.readers()}", f"--batch_size={work.examples_per_reader()}",
                   f"--max_steps={work.max_steps}", f"--seed={work.seed}", path)
    return dataclasses.replace(work, start=path)


def make_works(args, python, folder):
    """Returns the cases to run, by name; generates missing data."""
    data = {"cnn": user_path(args.data_dir) if args.data_dir else "", "gpt": "", "llama": ""}
    scripts = {"cnn": "make_cifar10_folder.py", "gpt": "make_text.py", "llama": "make_text.py"}
    works = {}
    for name in args.only:
        kind, options = CASES[name]
        options = {"max_steps": args.steps} | options
        if kind.model == "mlp":
            works[name] = kind(**options)
            continue
        if not data[kind.model]:
            data[kind.model] = f"{folder}/{kind.model}"
            run_script(python, scripts[kind.model], data[kind.model])
        options = {"threads": args.threads} | options if kind.model == "cnn" else options
        work = kind(**({"batch_size": 64} | options), data_dir=data[kind.model])
        starts = any(framework.needs_start and not framework.cannot(work)
                     for framework in map(FRAMEWORKS.get, args.frameworks))
        works[name] = make_start(python, work, folder) if starts else work
    return works


def make_programs(args, works):
    """Returns the programs, ours first."""
    names = {work.trainer() for work in works.values()}
    names |= ({"ddp"} if "fsdp" in names else set()) | ({"single"} if "pipeline" in names else set())
    trainers = {name: user_path(getattr(args, name)) if getattr(args, name) else trainer(name)
                for name in names}
    python = {name: find(ENVIRONMENTS[FRAMEWORKS[name].environment]) for name in args.frameworks}
    programs = [Rankwise(trainers, args.extra_flag)]
    for name in args.frameworks:
        programs.append(PythonProgram(FRAMEWORKS[name], python[name]))
        if name == "pytorch" and args.with_tuned:
            programs += [PythonProgram(framework, python[name])
                         for framework in (tuned_pytorch(), compiled_pytorch())]
    return programs + other_trainers(trainers, args.extra_flag)


def run_once(program, work, **options):
    with tempfile.TemporaryDirectory(prefix="versus.") as folder:
        return program.run(work, folder, **options)


def run_case(name, work, programs, runs):
    """Runs all programs of a case; each program's last result is the memory run."""
    able = [program for program in programs if not program.cannot(work)]
    results = {program.title: [] for program in able}
    for turn in range(runs + 1):
        for program in able:
            tell(f"{name}: {program.title}, " +
                 ("memory" if turn == runs else f"run {turn + 1} of {runs}"))
            result = run_once(program, work, sample_memory=turn == runs)
            results[program.title].append(result)
    lines = {program.title: comparison.lines_of_code(program.source(work)) for program in able}
    reasons = {program.title: program.cannot(work) for program in programs
               if program.cannot(work) not in ("", NOT_COMPARED)}
    return Case(name, work, results, lines, reasons)


def warn_of_late_lines(case):
    for name, runs in case.results.items():
        for run in runs[:-1]:
            late = run.first_step_seconds - run.reported_first_step_seconds
            if abs(late) > 0.2:
                tell(f"warning: {name} says that its first step was done {late:.2f} s before its "
                     "line arrived here; the arrival is what counts")


def print_report(cases, args):
    turns = "one run of each" if args.runs == 1 else (
        f"medians of {args.runs} runs in turn, in brackets the lowest and highest ratio of two "
        "neighbouring runs")
    for names in TABLES:
        if of_table := [case for case in cases if case.name in names]:
            print(f"\n{comparison.table(of_table)}\n")
            print("\n".join(comparison.reasons(of_table)))
    versions = []
    for name in args.frameworks:
        environment = ENVIRONMENTS[FRAMEWORKS[name].environment]
        versions.append(f"{environment.title} {version_in(find(environment), environment)[0]}")
    batches = ", ".join(f"{case.name} {case.work.batch()}" for case in cases)
    optimizers = dict.fromkeys({"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}[case.work.optimizer] for case in cases)
    lengths = dict.fromkeys(f"{case.work.max_steps} steps" if case.work.max_steps else "an epoch" for case in cases)
    print(f"\n{', '.join(versions)}; {' or '.join(optimizers)}, {' or '.join(lengths)}; {turns}.\n"
          f"A step's batch: {batches}.")
    print("Largest difference to rankwise in the first steps' losses:", flush=True)
    for case in cases:
        found = comparison.loss_differences(case).items()
        print(f"- {case.name}: " + ", ".join(f"{name} {value:.1e}" for name, value in found), flush=True)


def write_samples(cases, path):
    samples = {case.name: {name: [dataclasses.asdict(run) for run in runs]
                           for name, runs in case.results.items()} for case in cases}
    pathlib.Path(path).write_text(json.dumps(samples))


def compare(args, folder):
    works = make_works(args, find(ENVIRONMENTS["pytorch"]), folder)
    programs = make_programs(args, works)
    cases = []
    for name, work in works.items():
        cases.append(run_case(name, work, programs, args.runs))
        warn_of_late_lines(cases[-1])
    print_report(cases, args)
    if args.out:
        write_samples(cases, user_path(args.out))
    if broken := comparison.too_different(cases):
        sys.exit("versus: " + "; ".join(broken))


def main():
    args = parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="versus.") as folder:
            compare(args, folder)
    except NoPython as error:
        sys.exit(f"versus: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
