"""Compares //trainers:single with the rate of a matrix product: the best rate that any run of the case measured, as other programs
slow some runs. Runs alternate.

    bazel build //trainers:single
    python3 limit.py --data_dir /tmp/cifar10
    python3 limit.py --only gpt_bf16 --binary before/single --binary bazel-bin/trainers/single

Medians of the runs, in brackets the lowest and highest. Prints Markdown.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from comparison import ratio_text, steady

GPT = ["--threads=1", "--max_steps=16", "--model=gpt", "--batch_size=8"]
MODELS = {
    "cnn": ["--threads=2", "--max_steps=100", "--model=simple_cnn", "--batch_size=64", "--dataset=cifar10",
            "--data_dir={data_dir}", "--optimizer=adam", "--lr=0.001"],
    "gpt": GPT,
    "gpt_6x384": [*GPT, "--depth=6", "--width=384"],
    "vit": ["--threads=1", "--max_steps=16", "--model=vit", "--batch_size=64"],
}
CASES = {f"{name}_{precision}": [*flags, f"--precision={precision}"]
         for name, flags in MODELS.items() for precision in ("fp32", "bf16")}
COMPUTE = ("forward_seconds", "backward_seconds", "optimizer_seconds")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", action="append",
                        help="path of //trainers:single (bazel-bin/trainers/single); may be repeated, to compare builds")
    parser.add_argument("--only", default=",".join(CASES), help=f"which of {','.join(CASES)} (all)")
    parser.add_argument("--runs", type=int, default=7, help="runs of each case and binary (7)")
    parser.add_argument("--data_dir", default="/tmp/cifar10", help="CIFAR-10 folder (/tmp/cifar10)")
    args = parser.parse_args()
    args.binary = args.binary or ["bazel-bin/trainers/single"]
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(CASES):
        parser.error(f"--only: {sorted(unknown)[0]!r} is none of {', '.join(CASES)}")
    return args


def figures(record):
    """Returns the figures of the steps after warm-up in one run's record file."""
    with open(record) as lines:
        entries = [json.loads(line) for line in lines]
    run = next(entry for entry in entries if entry["kind"] == "run")
    steps = steady([entry for entry in entries if entry["kind"] == "step"])

    def total(*parts):
        return sum(step[part] for step in steps for part in parts)

    seconds = statistics.median(step["step_seconds"] for step in steps)
    flops = 3 * run["forward_flops_per_example"] * statistics.median(step["examples"] for step in steps)
    return {"ms": 1e3 * seconds, "gflops": 1e-9 * flops / seconds, "product": 1e-9 * run["peak_flops_per_second"],
            "wait": 100 * total("data_wait_seconds") / total("step_seconds"),
            "outside": 100 * (1 - total(*COMPUTE) / total("step_seconds"))}


def run_once(binary, case, data_dir):
    """Uses a new cache folder, so that the run measures the product instead of reading it."""
    with tempfile.TemporaryDirectory(prefix="limit.") as folder:
        record = pathlib.Path(folder, "record.jsonl")
        command = [os.path.abspath(binary), *(flag.format(data_dir=data_dir) for flag in CASES[case]),
                   "--device=cpu", "--eval=false", "--peak=measured", f"--record={record}"]
        done = subprocess.run(command, env=os.environ | {"XDG_CACHE_HOME": folder}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"exit code {done.returncode} of: {' '.join(command)}\n{done.stdout[-4000:]}")
        return figures(record)


def with_range(values, digits=1):
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def row(name, runs, best_product, first):
    """`first`: alternating runs of another build, if any."""
    of = {figure: [run[figure] for run in runs] for figure in runs[0]}
    shares = [100 * gflops / best_product for gflops in of["gflops"]]
    cells = [name, with_range(of["ms"]), f"{statistics.median(of['gflops']):.0f}", with_range(of["product"], 0),
             with_range(shares) + " %", f"{statistics.median(of['wait']):.2f} %",
             f"{statistics.median(of['outside']):.2f} %"]
    cells += [ratio_text([run["ms"] for run in first], of["ms"])] if first else []
    return "| " + " | ".join(cells) + " |"


def main():
    args = parse_args()
    results = {(case, binary): [] for case in args.only for binary in args.binary}
    for turn in range(args.runs):
        for (case, binary), runs in results.items():
            runs.append(run_once(binary, case, args.data_dir))
            print(f"run {turn + 1} of {args.runs}: {case}, {binary}: {runs[-1]['ms']:.1f} ms, "
                  f"{runs[-1]['gflops']:.1f} GFLOP/s, the product {runs[-1]['product']:.0f}", file=sys.stderr, flush=True)
    several = len(args.binary) > 1
    head = ["", "ms a step", "GFLOP/s", "product, GFLOP/s", "of the best product", "data wait",
            "outside forward, backward and update", *([f"speed against {args.binary[0]}"] if several else [])]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for (case, binary), runs in results.items():
        best_product = max(run["product"] for other in args.binary for run in results[case, other])
        print(row(f"{case}, {binary}" if several else case, runs, best_product,
                  results[case, args.binary[0]] if several else None))


if __name__ == "__main__":
    main()
