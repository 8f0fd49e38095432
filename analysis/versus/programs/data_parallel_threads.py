"""The step of torch.nn.DataParallel by Python threads on the CPU; PyTorch's own needs CUDA devices.

    python data_parallel_threads.py --replicas=2 --model=mlp --depth=32 --width=128

Scatter, replicate, forward in a thread per replica, gather, loss, backward in a thread per replica, reduce, update:
the same as `//trainers:data_parallel` with the same flags, except for Python and its GIL. Prints one JSON object:
the losses, and the seconds of every step and its parts.
"""

import argparse
import copy
import json
import sys
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10


def simple_cnn():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(64 * 8 * 8, 512), nn.ReLU(), nn.Linear(512, CLASSES))


def mlp(depth, width):
    layers, features = [nn.Flatten()], 3 * 32 * 32
    for _ in range(depth):
        layers += [nn.Linear(features, width), nn.ReLU()]
        features = width
    return nn.Sequential(*layers, nn.Linear(features, CLASSES))


class Replicas:
    """A model and its copies, each run by a thread."""

    def __init__(self, model, args):
        self.args = args
        self.all = [model] + [copy.deepcopy(model) for _ in range(args.replicas - 1)]
        if args.replicate == "once":
            self.replicate(len(self.all), lambda tensor: tensor)

    def replicate(self, count, copied=torch.clone):
        for replica in self.all[1:count]:
            for mine, models in zip(replica.parameters(), self.all[0].parameters()):
                mine.data = copied(models.data)

    def apply(self, count, body):
        """Runs each body(i) in a thread, like torch.nn.parallel.parallel_apply."""
        results = [None] * count

        def work(i):
            results[i] = body(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, count)]
        for thread in threads:
            thread.start()
        work(0)
        for thread in threads:
            thread.join()
        return results

    def reduce(self, count):
        """With --replicate=once, all threads reduce, each a part of every gradient."""
        slices = count if self.args.replicate == "once" else 1

        def sum_slice(i):
            for replica in self.all[1:count]:
                for mine, models in zip(replica.parameters(), self.all[0].parameters()):
                    parts = (grad.as_strided((grad.numel(),), (1,)).tensor_split(slices)[i]
                             for grad in (models.grad, mine.grad))
                    next(parts).add_(next(parts))

        self.apply(slices, sum_slice)
        for replica in self.all[1:count]:
            for mine in replica.parameters():
                mine.grad = None


class Clock:
    def __init__(self):
        self.parts, self.name, self.start = {}, None, time.perf_counter()

    def begin(self, name):
        now = time.perf_counter()
        if self.name is not None:
            self.parts[self.name] = self.parts.get(self.name, 0) + now - self.start
        self.name, self.start = name, now


def scatter(tensor, replicas):
    parts = list(tensor.chunk(replicas))
    return parts[:1] + [part.clone() for part in parts[1:]]


def step(replicas, optimizer, images, labels, clock):
    args = replicas.args
    clock.begin("scatter")
    parts, targets = scatter(images, args.replicas), scatter(labels, args.replicas)
    count = len(parts)
    clock.begin("replicate")
    if args.replicate == "step":
        replicas.replicate(count)
    clock.begin("forward")

    def forward(i):
        output = replicas.all[i](parts[i])
        if args.gather == "output":
            return output
        return (F.cross_entropy(output, targets[i]) * (len(targets[i]) / len(labels))).reshape(1)

    outputs = replicas.apply(count, forward)
    clock.begin("gather")
    gathered = torch.cat([output.detach() for output in outputs]).requires_grad_()
    clock.begin("loss")
    loss = gathered.sum() if args.gather == "loss" else F.cross_entropy(gathered, labels)
    loss.backward()
    clock.begin("scatter gradient")
    gradients = gathered.grad.split([len(output) for output in outputs])
    gradients = [gradients[0]] + [gradient.clone() for gradient in gradients[1:]]
    clock.begin("backward")
    replicas.apply(count, lambda i: outputs[i].backward(gradients[i]))
    clock.begin("reduce")
    replicas.reduce(count)
    clock.begin("optimizer")
    optimizer.step()
    optimizer.zero_grad()
    clock.begin(None)
    return loss.item()


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--gather", choices=["output", "loss"], default="output")
    parser.add_argument("--replicate", choices=["step", "once"], default="step")
    parser.add_argument("--model", choices=["simple_cnn", "mlp"], default="simple_cnn")
    parser.add_argument("--depth", type=int, default=2, help="depth of mlp")
    parser.add_argument("--width", type=int, default=512, help="width of mlp")
    parser.add_argument("--batch_size", type=int, default=64, help="batch of all replicas")
    parser.add_argument("--max_steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1, help="threads per replica")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = simple_cnn() if args.model == "simple_cnn" else mlp(args.depth, args.width)
    model.to(memory_format=torch.channels_last)
    replicas = Replicas(model, args)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    batches = [(torch.randn(args.batch_size, 3, 32, 32), torch.randint(CLASSES, (args.batch_size,)))
               for _ in range(8)]
    result = {"gil": getattr(sys, "_is_gil_enabled", lambda: True)(), "losses": [], "steps": []}
    for i in range(args.max_steps):
        clock, start = Clock(), time.perf_counter()
        result["losses"].append(step(replicas, optimizer, *batches[i % len(batches)], clock))
        result["steps"].append({"step": time.perf_counter() - start} | clock.parts)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
