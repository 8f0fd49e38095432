"""Separates the cost of DataParallel's design from that of Python's GIL.

    bazel build //trainers:single //trainers:data_parallel //trainers:ddp
    python3 data_parallel.py --bin=bazel-bin/trainers --runs=5

Runs of `//trainers:data_parallel` in its four ways, of `//trainers:ddp` over each backend and of
data_parallel_threads.py alternate, on the same global batch, 1 thread per replica or rank. Prints tables in
Markdown: the median step and the time of its parts, medians over the runs. Uses the Python of the environment
`pytorch` of environments.py.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import environments

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
TRAINERS = ("single", "data_parallel", "ddp")
BACKENDS = ("gloo", "shm", "mpi")
WARM_UP = 10
MODELS = {"simple_cnn": ["--model=simple_cnn"],
          "mlp of 32 layers": ["--model=mlp", "--depth=32", "--width=128"]}
WAYS = {"": [], "--gather=loss": ["--gather=loss"], "--replicate=once": ["--replicate=once"],
        "both": ["--gather=loss", "--replicate=once"]}
PARTS = ["scatter", "replicate", "forward", "gather", "loss", "scatter gradient", "backward", "reduce",
         "optimizer"]


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def counts(text):
    return [positive(count) for count in text.split(",")]


def backends(text):
    names = text.split(",")
    if unknown := [name for name in names if name not in BACKENDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(BACKENDS)}")
    return names


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="folder of the trainers' binaries")
    parser.add_argument("--runs", type=positive, default=5, help="runs of each program (5)")
    parser.add_argument("--steps", type=positive, default=60, help=f"steps per run; the first {WARM_UP} do not count (60)")
    parser.add_argument("--batch_size", type=positive, default=64, help="batch of all replicas or ranks (64)")
    parser.add_argument("--replicas", type=counts, default="1,2,4", help="replicas and ranks (1,2,4)")
    parser.add_argument("--backends", type=backends, default=",".join(BACKENDS),
                        help=f"backends of ddp ({','.join(BACKENDS)})")
    parser.add_argument("--only", choices=list(MODELS), help="one of the models")
    args = parser.parse_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps: expected more than {WARM_UP}")
    if any(args.batch_size % count for count in args.replicas):
        parser.error("--batch_size: expected a multiple of every count in --replicas")
    if missing := [name for name in TRAINERS if not pathlib.Path(args.bin, name).is_file()]:
        parser.error(f"--bin: no {missing[0]} in {args.bin}; build it by `bazel build //trainers:{missing[0]}`")
    return args


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def parts_of_record(step):
    """Returns a step record's seconds by the Python program's names."""
    first = step["first_device_seconds"]
    of_forward = sum(first.get(part, 0) for part in ("scatter", "replicate", "gather", "loss"))
    of_backward = sum(first.get(part, 0) for part in ("scatter gradient", "reduce"))
    return {"step": step["step_seconds"], "optimizer": step["optimizer_seconds"],
            "forward": step["forward_seconds"] - of_forward,
            "backward": step["backward_seconds"] - of_backward} | first


def run_trainer(command):
    with tempfile.TemporaryDirectory(prefix="data_parallel.") as folder:
        record = f"{folder}/record.jsonl"
        output_of([*command, f"--record={record}", "--eval=false", "--device=cpu", "--progress=false"])
        with open(record) as lines:
            entries = [json.loads(line) for line in lines]
    return [parts_of_record(entry) for entry in entries if entry["kind"] == "step" and entry["rank"] == 0]


def run_python(command):
    result = json.loads(output_of(command))
    return result["steps"]


def programs(args, model, python):
    """Returns (row, replicas) -> a function that runs it once and returns its steps."""
    found = {}
    work = [*MODELS[model], f"--max_steps={args.steps}", "--threads=1"]
    ours = [*work, f"--train_size={args.steps * args.batch_size}"]

    def add(row, count, run, command):
        found[row, count] = lambda: run(command)

    add("`single`", 1, run_trainer, [f"{args.bin}/single", *ours, f"--batch_size={args.batch_size}"])
    for count in args.replicas:
        shared = [f"--batch_size={args.batch_size}", f"--replicas={count}"]
        for way, flags in WAYS.items():
            name = f"`data_parallel`{', ' + way if way else ''}"
            add(name, count, run_trainer, [f"{args.bin}/data_parallel", *ours, *shared, *flags])
        for backend in args.backends:
            add(f"`ddp`, {backend}", count, run_trainer,
                [f"{args.bin}/ddp", *ours, f"--backend={backend}", f"--nproc={count}",
                 f"--batch_size={args.batch_size // count}"])
        for way in ("", "both"):
            name = f"Python threads{', ' + way if way else ''}"
            add(name, count, run_python,
                [python, str(PROGRAMS / "data_parallel_threads.py"), *work, *shared, *WAYS[way]])
    return found


def medians(steps):
    steps = steps[WARM_UP:]
    return {part: statistics.median(step.get(part, 0) for step in steps) for part in ["step", *PARTS]}


def measure(args, model, python):
    """Returns (row, replicas) -> part -> median over the runs, in ms."""
    runs = {}
    for turn in range(args.runs):
        print(f"{model}: run {turn + 1} of {args.runs}", file=sys.stderr, flush=True)
        for key, run in programs(args, model, python).items():
            runs.setdefault(key, []).append(medians(run()))
    return {key: {part: 1e3 * statistics.median(run[part] for run in of_key) for part in of_key[0]}
            for key, of_key in runs.items()}


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def report(args, model, results):
    names = list(dict.fromkeys(name for name, _ in results))
    most = max((count for count in args.replicas if count <= 2), default=min(args.replicas))

    def cell(name, count):
        if (name, count) not in results:
            return ""
        own, first = results[name, count]["step"], results.get((name, args.replicas[0]))
        return f"{own:.1f}" + (f" ({first['step'] / own:.2f})" if first and count != args.replicas[0] else "")

    print(f"\n{model}, ms a step (speed-up over the first column), global batch {args.batch_size}:\n")
    print(table(["", *map(str, args.replicas)],
                [[name, *(cell(name, count) for count in args.replicas)] for name in names]))
    print(f"\nThe parts of a step with {most} replicas, ms:\n")
    print(table(["", "step", *PARTS],
                [[name, *(f"{results[name, most][part]:.2f}" for part in ["step", *PARTS])]
                 for name in names if "ddp" not in name and (name, most) in results]), flush=True)


def main():
    args = parse_args()
    try:
        python = environments.find(environments.ENVIRONMENTS["pytorch"])
    except environments.NoPython as error:
        sys.exit(f"data_parallel: {error}")
    for model in [args.only] if args.only else MODELS:
        report(args, model, measure(args, model, python))


if __name__ == "__main__":
    main()
