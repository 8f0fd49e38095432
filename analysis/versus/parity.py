"""Checks that the C++ trainers compute the same as PyTorch: step losses, and weights after training.

    python parity.py --single bazel-bin/trainers/single --ddp bazel-bin/trainers/ddp \\
        --data_dir FOLDER --optimizer sgd --lr 0.01

Trains on the same global batches alone with batch 64 and on 2 ranks with batch 32, in C++ and in Python;
in Python also with the C++ trainers' memory layout and optimizer kernel ("tuned"). Exits non-zero if a
difference exceeds its bound. Rows without a bound show the effect of rounding between two convolution
kernels; the last row is PyTorch's own difference between 1 and 2 ranks.
"""

import argparse
import os
import pathlib
import sys
import tempfile

from safetensors.torch import load_file

from frameworks import FRAMEWORKS, PythonProgram, Rankwise, tuned_pytorch
from works import Work

COMPARED_LOSSES = 20
LOSS_BOUND = 1e-4
# Difference to PyTorch's losses. Adam magnifies the rounding of another kernel: PyTorch differs from itself by
# 3e-4 between 1 and 2 threads.
PYTORCH_LOSS_BOUNDS = {"sgd": LOSS_BOUND, "adam": 1e-3}
# Norm of a weight's difference over the weight's norm. Adam divides by the gradient's magnitude and so turns
# rounding of tiny gradients into whole steps.
WEIGHT_BOUNDS = {"sgd": 1e-5, "adam": 1e-3}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--single", required=True, help="the binary of //trainers:single")
    parser.add_argument("--ddp", required=True, help="the binary of //trainers:ddp")
    parser.add_argument("--data_dir", required=True, help="CIFAR-10 folder, or a made one")
    parser.add_argument("--optimizer", choices=list(WEIGHT_BOUNDS), default="sgd")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1,
                        help="threads of a run on one rank; DDP runs use 1 per rank; PyTorch's own losses "
                             "change with it, by 3e-4 in 20 Adam steps")
    parser.add_argument("--extra_flag", action="append", default=[],
                        help="passed on to the C++ binaries, may be repeated")
    return parser.parse_args()


def train_all(args, folder):
    """Returns losses and weights of all runs by name."""
    common = dict(data_dir=str(pathlib.Path(args.data_dir).resolve()), max_steps=args.steps,
                  optimizer=args.optimizer, lr=args.lr, seed=args.seed)
    works = {"single": Work(world_size=0, batch_size=64, threads=args.threads, **common),
             "ddp x2": Work(world_size=2, batch_size=32, threads=1, **common)}
    trainers = {"single": os.path.abspath(args.single), "ddp": os.path.abspath(args.ddp)}
    ours = Rankwise(trainers, args.extra_flag)
    runs = {}
    for program in (ours, PythonProgram(FRAMEWORKS["pytorch"]), PythonProgram(tuned_pytorch())):
        for kind, work in works.items():
            name = f"{program.title} {kind}"
            print(f"training: {name}", file=sys.stderr, flush=True)
            run_folder = pathlib.Path(folder, name.replace(" ", "_"))
            run_folder.mkdir()
            result = program.run(work, str(run_folder), save_params=True)
            runs[name] = (result.losses[:COMPARED_LOSSES], load_file(result.params_file))
    return runs


def loss_difference(left, right):
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


def weight_difference(left, right):
    if left.keys() != right.keys():
        raise SystemExit(f"different weights: {sorted(left.keys() ^ right.keys())}")
    return max(((left[k] - right[k]).norm() / right[k].norm()).item() for k in right)


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = train_all(args, folder)
    pytorch_bound, weight_bound = PYTORCH_LOSS_BOUNDS[args.optimizer], WEIGHT_BOUNDS[args.optimizer]
    rows = (("rankwise single", "PyTorch single", pytorch_bound, None),
            ("rankwise ddp x2", "PyTorch ddp x2", pytorch_bound, None),
            ("rankwise single", "PyTorch tuned single", pytorch_bound, None),
            ("rankwise ddp x2", "PyTorch tuned ddp x2", pytorch_bound, None),
            ("rankwise ddp x2", "rankwise single", LOSS_BOUND, weight_bound),
            ("PyTorch ddp x2", "PyTorch single", None, None))
    print(f"\n{args.optimizer}, learning rate {args.lr}, seed {args.seed}, {args.steps} steps, "
          f"{args.threads} threads on one rank, 1 on each of two\n")
    print(f"| | largest difference of the first {COMPARED_LOSSES} losses "
          "| of the weights, relative |\n|---|---|---|")
    failed = False
    for left, right, *bounds in rows:
        differences = (loss_difference(runs[left][0], runs[right][0]),
                       weight_difference(runs[left][1], runs[right][1]))
        cells = []
        for difference, bound in zip(differences, bounds):
            failed |= bound is not None and not difference < bound
            cells.append(f"{difference:.1e}" + (f" (bound {bound:.0e})" if bound else ""))
        print(f"| {left} and {right} | {' | '.join(cells)} |")
    sys.exit("a difference is over its bound" if failed else 0)


if __name__ == "__main__":
    main()
