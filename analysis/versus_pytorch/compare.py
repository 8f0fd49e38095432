"""Measures the C++ trainers against train.py: alternating runs in one session, medians.

    bazel build //trainers:single //trainers:ddp
    python compare.py --single bazel-bin/trainers/single --ddp bazel-bin/trainers/ddp \\
        --data_dir FOLDER

Prints Markdown. Speed and start-up are medians over --repeats runs; memory comes from one more run of
each, since sampling it costs time.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import tempfile

from runs import Pytorch, Rankwise, Work

WARM_UP_STEPS = 10
COMPARED_LOSSES = 20


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--single", required=True, help="the binary of //trainers:single")
    parser.add_argument("--ddp", required=True, help="the binary of //trainers:ddp")
    parser.add_argument("--data_dir", required=True, help="CIFAR-10 folder, or a made one")
    parser.add_argument("--cases", default="fp32,bf16,ddp", help="which of fp32,bf16,ddp")
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps a run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each program and case")
    parser.add_argument("--threads", type=int, default=os.cpu_count(),
                        help="of a run on one rank; DDP runs take 1 a rank")
    parser.add_argument("--with_tuned", action="store_true",
                        help="also PyTorch with channels-last and fused Adam")
    parser.add_argument("--extra_flag", action="append", default=[],
                        help="passed on to the C++ binaries, may be repeated")
    parser.add_argument("--out", help="also write every sample to this JSON file")
    return parser.parse_args()


def make_cases(args):
    common = dict(data_dir=str(pathlib.Path(args.data_dir).resolve()), batch_size=64,
                  max_steps=args.steps)
    cases = {
        "fp32": Work(world_size=0, threads=args.threads, **common),
        "bf16": Work(world_size=0, threads=args.threads, precision="bf16", **common),
        "ddp": Work(world_size=2, threads=1, **common),
    }
    return {name: cases[name] for name in args.cases.split(",")}


def run_once(program, work, **options):
    with tempfile.TemporaryDirectory() as folder:
        return program.run(work, folder, **options)


def run_case(name, work, programs, repeats):
    """Results by program name; the last one of each is the memory run."""
    results = {program.name: [] for program in programs}
    for turn in range(repeats + 1):
        for program in programs:
            what = "memory" if turn == repeats else f"run {turn + 1} of {repeats}"
            print(f"{name}: {program.name}, {what}", file=sys.stderr, flush=True)
            result = run_once(program, work, sample_memory=turn == repeats)
            results[program.name].append(result)
    return results


def steady(result):
    return result.step_seconds[WARM_UP_STEPS:] or result.step_seconds


def summarize(work, results):
    timed, memory = results[:-1], results[-1]
    images = work.images_per_step()
    return {
        "images/s (median step)": statistics.median(
            images / statistics.median(steady(r)) for r in timed),
        "images/s (mean step)": statistics.median(
            images / statistics.fmean(steady(r)) for r in timed),
        "launch to first step, s": statistics.median(r.first_step_seconds for r in timed),
        "peak memory of all processes (PSS), MiB": memory.peak_pss_mib,
        "peak memory of the largest process (RSS), MiB": memory.largest_process_mib,
    }


def print_table(case, summaries):
    names = list(summaries)
    ratios = [f"{names[0]} / {other}" for other in names[1:]]
    print(f"\n**{case}**\n\n| | " + " | ".join(names + ratios) + " |")
    print("|---" * (1 + len(names) + len(ratios)) + "|")
    for metric in summaries[names[0]]:
        values = [summaries[name][metric] for name in names]
        cells = [f"{value:.4g}" for value in values]
        cells += [f"{values[0] / other:.3f}" for other in values[1:]]
        print(f"| {metric} | " + " | ".join(cells) + " |")


def print_loss_difference(results):
    ours, theirs = (results[name][0].losses[:COMPARED_LOSSES] for name in list(results)[:2])
    pairs = list(zip(ours, theirs, strict=True))
    largest = max(abs(a - b) for a, b in pairs)
    print(f"\nLargest difference of the first {len(pairs)} step losses: {largest:.2e}", flush=True)


def warn_of_late_lines(results):
    for name, runs in results.items():
        for run in runs[:-1]:
            late = run.first_step_seconds - run.reported_first_step_seconds
            if abs(late) > 0.2:
                print(f"warning: {name} says that its first step was done {late:.2f} s before its "
                      "line arrived here; the arrival is what counts", file=sys.stderr)


def main():
    args = parse_args()
    programs = [Rankwise(os.path.abspath(args.single), os.path.abspath(args.ddp),
                         args.extra_flag), Pytorch()]
    programs += [Pytorch("PyTorch tuned", tuned=True)] if args.with_tuned else []
    samples = {}
    for case, work in make_cases(args).items():
        results = run_case(case, work, programs, args.repeats)
        samples[case] = {k: [dataclasses.asdict(r) for r in v] for k, v in results.items()}
        warn_of_late_lines(results)
        print_table(f"{case}: {work.world_size or 1} x {work.threads} threads, batch "
                    f"{work.batch_size} a rank, {work.max_steps} steps, {args.repeats} runs",
                    {name: summarize(work, runs) for name, runs in results.items()})
        print_loss_difference(results)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(samples))


if __name__ == "__main__":
    main()
