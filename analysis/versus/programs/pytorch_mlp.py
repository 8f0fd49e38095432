"""An mlp of equal layers in PyTorch from Python, divided into stages by torch.distributed.pipelining.

    torchrun --standalone --nproc_per_node 2 pytorch_mlp.py --schedule 1f1b --max_steps 20

Same seed, same losses as `//trainers:pipeline --model=mlp --optimizer=sgd` with equal --depth, --width, --input_width
and --classes: those of the generated data set `synthetic`, whose vectors `Vectors` makes here.
"""

import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from reporting import Report, process_start, run_parser

STEP = 0x9E3779B97F4A7C15  # of SplitMix64's counter


def mix(x):
    """SplitMix64's finaliser, of arrays of uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draws(keys, first, count):
    """Returns [len(keys), count]: SplitMix64's numbers from each key, without the first `first`."""
    steps = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(STEP)
    return mix(keys[:, None] + steps)


def below(bits, bound):
    return ((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


class Vectors(Dataset):
    """The training split of samplers/datasets's `synthetic` with `features`."""

    def __init__(self, size, features, classes, seed):
        seeded = mix(np.array([seed], dtype=np.uint64))
        stream, patterns = mix(seeded + np.uint64(1)), mix(seeded + np.uint64(5))
        keys = mix(stream ^ np.arange(size, dtype=np.uint64))
        choices = draws(keys, 0, 3)
        label = below(choices[:, 0], classes)
        other = (label + np.uint64(1) + below(choices[:, 1], classes - 1)) % np.uint64(classes)
        share = 102 + below(choices[:, 2], 257 - 102).astype(np.int32)[:, None]

        def signed_bytes(keys, first):
            words = draws(keys, first, -(-features // 8))
            return words.view(np.uint8)[:, :features].astype(np.int32) - 128

        own, mixed = (signed_bytes(mix(patterns + which + np.uint64(STEP)), 0) for which in (label, other))
        values = (((share * own + (256 - share) * mixed) >> 8) + signed_bytes(keys, 3)) >> 1
        self.data = torch.from_numpy(values.astype(np.float32) / 64)
        self.labels = torch.from_numpy(label.astype(np.int64))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.data[index], self.labels[index]


def make_layers(args):
    torch.manual_seed(args.seed)
    widths = [args.width] * (args.depth + 1) + [args.classes]
    layers = [[nn.Linear(inputs, outputs), nn.ReLU()] for inputs, outputs in zip(widths, widths[1:], strict=False)]
    layers[-1].pop()
    return [nn.Sequential(*layer) for layer in layers]


def make_schedule(args, rank, ranks):
    """Returns a schedule of this rank's stages, their modules, and whether they include the last one, with the loss."""
    layers = make_layers(args)
    stages = [rank] if args.schedule == "1f1b" else [rank, rank + ranks]
    count = len(stages) * ranks
    per_stage = len(layers) // count
    modules = [nn.Sequential(*layers[stage * per_stage:][:per_stage]) for stage in stages]
    parts = [PipelineStage(module, stage, count, torch.device("cpu"))
             for module, stage in zip(modules, stages, strict=True)]
    # ScheduleZBVZeroBubble begins with messages between stages of one rank, which Gloo does not have.
    schedule = (Schedule1F1B(parts[0], args.microbatches, loss_fn=F.cross_entropy) if args.schedule == "1f1b" else
                ScheduleInterleavedZeroBubble(parts, args.microbatches, loss_fn=F.cross_entropy))
    return schedule, modules, count - 1 in stages


def train(args, report):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    schedule, modules, last = make_schedule(args, rank, ranks)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=args.lr)
    batch = args.batch_size * args.microbatches
    vectors = Vectors(args.max_steps * batch, args.width, args.classes, args.seed)
    sampler = DistributedSampler(vectors, 1, 0, shuffle=True, seed=args.seed)
    sampler.set_epoch(1)
    for data, labels in DataLoader(vectors, batch, sampler=sampler):
        optimizer.zero_grad()
        losses = []
        schedule.step(*([data] if rank == 0 else []), target=labels if last else None,
                      losses=losses if last else None, return_outputs=False)
        optimizer.step()
        report.step_done(torch.stack([loss.detach() for loss in losses]).mean().item() if last else 0)
    # On the rank that reports.
    losses = torch.tensor(report.losses, dtype=torch.float64)
    dist.all_reduce(losses)
    report.losses = losses.tolist()


def parse_args():
    parser = run_parser(__doc__)
    parser.add_argument("--schedule", choices=["1f1b", "zero_bubble"], default="1f1b")
    parser.add_argument("--depth", type=int, default=15, help="hidden layers")
    parser.add_argument("--width", type=int, default=768, help="features of the data and between layers")
    parser.add_argument("--classes", type=int, default=768)
    parser.add_argument("--batch_size", type=int, default=64, help="examples per micro-batch")
    parser.add_argument("--microbatches", type=int, default=8, help="per optimizer step")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(max_steps=20, lr=0.01)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    report = Report(dist.get_rank(), launched=process_start(os.getppid()))
    train(args, report)
    report.finish(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
