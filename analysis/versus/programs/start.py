"""Writes the initial state of a training run, for programs that cannot draw PyTorch's random numbers.

    python start.py --model cnn --data_dir cifar-10-batches-bin --batch_size 64 --ranks 2 --max_steps 100 start.npz

The file has `order`, the examples of every step and rank (steps, ranks, batch), and the initial weights by
name, in the layout of frameworks with channels last: (in, out) for a linear layer, (height, width, in, out)
for a convolution. Needs PyTorch.
"""

import argparse

import numpy as np
import torch
from torch.utils.data import DistributedSampler

import pytorch_cnn
import pytorch_gpt


def cnn_weights(seed):
    torch.manual_seed(seed)
    weights = pytorch_cnn.SimpleCNN().state_dict()
    # Rows of fc1 follow the flattened image, whose channels come last elsewhere.
    fc1 = weights["fc1.weight"].unflatten(1, (64, 8, 8)).permute(0, 2, 3, 1).flatten(1)
    return {**weights, "fc1.weight": fc1}


def gpt_weights(seed):
    model = pytorch_gpt.Gpt(tied=True)
    model.draw_weights(seed)
    return {name: value for name, value in model.state_dict().items() if name != "head.weight"}


def channels_last(name, value):
    if value.dim() == 4:
        return value.permute(2, 3, 1, 0)
    embedding = name in ("token.weight", "position.weight")
    return value.T if value.dim() == 2 and not embedding else value


def example_order(examples, args):
    """Returns the order of DataLoader(drop_last=True) with a DistributedSampler on every rank."""
    batches, epoch = [], 1
    while len(batches) < args.max_steps:
        ranks = []
        for rank in range(args.ranks):
            sampler = DistributedSampler(range(examples), args.ranks, rank, seed=args.seed)
            sampler.set_epoch(epoch)
            ranks.append(list(sampler))
        order = np.array(ranks, dtype=np.int32)
        whole = order.shape[1] // args.batch_size
        if not whole:
            raise SystemExit(f"{examples} examples are too few for {args.ranks} ranks with a batch of "
                             f"{args.batch_size} each")
        order = order[:, :whole * args.batch_size].reshape(args.ranks, whole, args.batch_size)
        batches.extend(order.transpose(1, 0, 2))
        epoch += 1
    return np.stack(batches[:args.max_steps])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["cnn", "gpt"], required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--batch_size", type=int, required=True, help="examples per rank and step")
    parser.add_argument("--ranks", type=int, required=True, help="that read different examples")
    parser.add_argument("--max_steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", help="file to write")
    return parser.parse_args()


def main():
    args = parse_args()
    if args.model == "cnn":
        weights, examples = cnn_weights(args.seed), len(pytorch_cnn.Cifar10(args.data_dir, train=True))
    else:
        weights, examples = gpt_weights(args.seed), len(pytorch_gpt.Text(args.data_dir))
    arrays = {name: channels_last(name, value).numpy() for name, value in weights.items()}
    np.savez(args.out, order=example_order(examples, args), **arrays)


if __name__ == "__main__":
    main()
