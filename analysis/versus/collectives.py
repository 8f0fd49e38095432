"""Measures //comm_bench against the same calls of torch.distributed: alternating runs, medians.

    bazel build //comm_bench
    python collectives.py --comm_bench bazel-bin/comm_bench/comm_bench --nproc 2

Both align ranks by a barrier before each iteration; an iteration's time is that of its slowest rank.
Prints Markdown.
"""

import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP = 20


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comm_bench", required=True, help="the binary of //comm_bench")
    parser.add_argument("--collective", default="all_reduce",
                        help="all_reduce, all_gather, reduce_scatter, broadcast or all_to_all")
    parser.add_argument("--sizes", default="4096,262144,8388608", help="bytes")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7, help="runs of each program")
    parser.add_argument("--extra_flag", action="append", default=[],
                        help="passed on to comm_bench, may be repeated")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_call(dist, torch, name, size, world):
    whole = torch.ones(size // 4)
    part = torch.ones(size // 4 // world)
    other = torch.empty_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }[name]


def work(args):
    """Runs one rank; rank 0 prints a line 'bytes median_seconds' per size."""
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in map(int, args.sizes.split(",")):
        call = make_call(dist, torch, args.collective, size, dist.get_world_size())
        seconds = torch.empty(WARM_UP + args.iterations, dtype=torch.float64)
        for i in range(len(seconds)):
            dist.barrier()
            start = time.perf_counter()
            call()
            seconds[i] = time.perf_counter() - start
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(size, statistics.median(seconds[WARM_UP:].tolist()), flush=True)
    dist.destroy_process_group()


def run_pytorch(args, _):
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(args.nproc):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(args.nproc),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                           GLOO_SOCKET_IFNAME="lo")
        command = [sys.executable, __file__, "--worker", "1", "--comm_bench", "",
                   "--collective", args.collective, "--sizes", args.sizes,
                   "--iterations", str(args.iterations)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("a rank of the PyTorch program failed")
    return {int(size): float(median)
            for size, median in (line.split() for line in outputs[0].splitlines())}


def run_comm_bench(args, folder):
    table = pathlib.Path(folder) / "table.csv"
    command = [os.path.abspath(args.comm_bench), f"--nproc={args.nproc}", "--threads=1", "--backend=gloo",
               f"--collectives={args.collective}", f"--sizes={args.sizes}",
               f"--iterations={args.iterations}", f"--warmup={WARM_UP}", f"--csv={table}",
               *args.extra_flag]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with table.open() as lines:
        return {int(row["bytes"]): float(row["median_seconds"]) for row in csv.DictReader(lines)}


def main():
    args = parse_args()
    if args.worker:
        return work(args)
    medians = {"rankwise": {}, "PyTorch": {}}
    for turn in range(args.repeats):
        for name, run in (("rankwise", run_comm_bench), ("PyTorch", run_pytorch)):
            print(f"run {turn + 1} of {args.repeats}: {name}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                for size, seconds in run(args, folder).items():
                    medians[name].setdefault(size, []).append(seconds)
    print(f"**{args.collective}**, {args.nproc} ranks, {args.iterations} iterations, medians of "
          f"{args.repeats} alternating runs\n")
    print("| bytes | rankwise, us | PyTorch, us | ratio |\n|---|---|---|---|")
    for size in medians["rankwise"]:
        ours, theirs = (statistics.median(medians[name][size]) for name in medians)
        print(f"| {size} | {ours * 1e6:.1f} | {theirs * 1e6:.1f} | {ours / theirs:.3f} |")
    return None


if __name__ == "__main__":
    main()
