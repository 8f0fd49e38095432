"""The trainers' program in PyTorch from Python: a small CNN on CIFAR-10, alone or under DDP.

    python pytorch_cnn.py --data_dir cifar-10-batches-bin --max_steps 100
    python pytorch_cnn.py --data_dir cifar-10-batches-bin --mode ddp --nproc 2 --threads 1
    torchrun --nproc_per_node 2 pytorch_cnn.py --data_dir cifar-10-batches-bin --mode ddp

Same seed, same losses as `//trainers:single` and `//trainers:ddp` with `--dataset=cifar10`.
"""

import argparse
import os
import resource
import socket
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from reporting import WARM_UP_STEPS, process_start, seconds_since_boot, write_list

RECORD_BYTES = 1 + 3 * 32 * 32


class Cifar10(Dataset):
    """The binary release of CIFAR-10, one example at a time, as torchvision's ToTensor and
    Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)) would give it."""

    def __init__(self, data_dir, train):
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
        files = [np.fromfile(os.path.join(data_dir, name), dtype=np.uint8) for name in names]
        records = np.concatenate(files).reshape(-1, RECORD_BYTES)
        self.labels = records[:, 0].astype(np.int64)
        self.images = records[:, 1:].reshape(-1, 3, 32, 32)
        self.mean = torch.full((3, 1, 1), 0.5)
        self.std = torch.full((3, 1, 1), 0.5)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).float().div(255)
        return image.sub_(self.mean).div_(self.std), int(self.labels[index])


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 8 * 8, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class ExposedCommunication:
    """Exposed all-reduce time at the end of backward, per step: from its last gradient, which makes
    DDP launch the last bucket, to its return."""

    def __init__(self, model):
        self.last_gradient, self.seconds = 0.0, []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.gradient_done)

    def gradient_done(self, _):
        self.last_gradient = time.perf_counter()

    def backward_done(self):
        self.seconds.append(time.perf_counter() - self.last_gradient)


def make_optimizer(args, model):
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=args.lr)
    return torch.optim.Adam(model.parameters(), lr=args.lr, fused=True if args.tuned else None)


class Trainer:
    def __init__(self, args, rank, world_size, launched):
        self.args, self.rank, self.world_size, self.launched = args, rank, world_size, launched
        torch.manual_seed(args.seed)
        self.model = SimpleCNN()
        self.layout = torch.channels_last if args.tuned else torch.contiguous_format
        self.model.to(memory_format=self.layout)
        self.net = DistributedDataParallel(self.model) if args.mode == "ddp" else self.model
        self.whole_batch_net = torch.compile(self.net) if args.compile else self.net
        self.exposed = ExposedCommunication(self.model) if args.exposed_seconds else None
        self.optimizer = make_optimizer(args, self.model)
        train = Cifar10(args.data_dir, train=True)
        self.sampler = DistributedSampler(train, world_size, rank, shuffle=True, seed=args.seed)
        self.loader = DataLoader(train, args.batch_size, sampler=self.sampler,
                                 num_workers=args.data_workers,
                                 persistent_workers=args.data_workers > 0)
        self.losses, self.step_seconds = [], []

    def forward_loss(self, images, labels):
        images = images.to(memory_format=self.layout)
        # torch.compile would compile the model again for the last batch of an epoch, which is smaller.
        net = self.whole_batch_net if len(images) == self.args.batch_size else self.net
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.precision == "bf16"):
            return F.cross_entropy(net(images), labels)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        loss = self.forward_loss(images, labels)
        loss.backward()
        if self.exposed:
            self.exposed.backward_done()
        self.optimizer.step()
        self.losses.append(loss.detach())

    def report(self, epoch):
        step = len(self.losses)
        if step == 1 and self.rank == 0:
            elapsed = seconds_since_boot() - self.launched
            print(f"first step done after {elapsed:.3f} s", flush=True)
        if step % self.args.log_every == 0 and self.rank == 0:
            print(f"epoch {epoch} step {step} loss {self.losses[-1].item():.4f}", flush=True)

    def run_epoch(self, epoch):
        """Returns False if --max_steps ended the epoch early."""
        self.sampler.set_epoch(epoch)
        step_start = time.perf_counter()
        for images, labels in self.loader:
            self.step(images, labels)
            self.report(epoch)
            now = time.perf_counter()
            self.step_seconds.append(now - step_start)
            step_start = now
            if len(self.losses) == self.args.max_steps:
                return False
        return True

    @torch.no_grad()
    def evaluate(self, epoch):
        test = Cifar10(self.args.data_dir, train=False)
        shard = range(self.rank, len(test), self.world_size)
        loader = DataLoader(test, self.args.batch_size, sampler=shard,
                            num_workers=self.args.data_workers)
        totals = torch.zeros(3, dtype=torch.float64)  # correct, loss, examples
        for images, labels in loader:
            logits = self.model(images.to(memory_format=self.layout))
            totals[0] += (logits.argmax(1) == labels).sum()
            totals[1] += F.cross_entropy(logits, labels, reduction="sum")
            totals[2] += len(labels)
        if self.args.mode == "ddp":
            dist.all_reduce(totals)
        correct, loss, examples = totals.tolist()
        if self.rank == 0:
            print(f"epoch {epoch} test loss {loss / examples:.4f} "
                  f"accuracy {100 * correct / examples:.2f} %", flush=True)

    def train(self):
        for epoch in range(1, self.args.epochs + 1):
            if not self.run_epoch(epoch):
                break
            self.evaluate(epoch)

    def mean_over_ranks(self, values):
        if self.args.mode == "ddp":
            dist.all_reduce(values)
        return values / self.world_size

    def finish(self):
        losses = self.mean_over_ranks(torch.stack(self.losses))
        exposed = self.mean_over_ranks(torch.tensor(self.exposed.seconds if self.exposed else []))
        if self.rank != 0:
            return
        self.print_summary()
        write_list(self.args.losses, losses.tolist())
        write_list(self.args.step_seconds, self.step_seconds)
        write_list(self.args.exposed_seconds, exposed.tolist())
        if self.args.save_params:
            from safetensors.torch import save_file
            parameters = {k: v.contiguous() for k, v in self.model.state_dict().items()}
            save_file(parameters, self.args.save_params)

    def print_summary(self):
        self.loader = None  # ends the workers: only ended children are in RUSAGE_CHILDREN
        steady = self.step_seconds[WARM_UP_STEPS:] or self.step_seconds
        rate = self.world_size * self.args.batch_size / statistics.median(steady)
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{rate:.1f} images/s (median step {1000 * statistics.median(steady):.2f} ms); "
              f"peak RSS {own:.0f} MiB, largest worker {children:.0f} MiB", flush=True)


def run_rank(rank, world_size, args, launched):
    torch.set_num_threads(args.threads)
    if args.mode == "ddp":
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    trainer = Trainer(args, rank, world_size, launched)
    trainer.train()
    trainer.finish()
    if args.mode == "ddp":
        dist.destroy_process_group()


def spawn_ranks(args, launched):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    mp.spawn(run_rank, args=(args.nproc, args, launched), nprocs=args.nproc)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="folder with data_batch_1.bin ...")
    parser.add_argument("--mode", choices=["single", "ddp"], default="single")
    parser.add_argument("--nproc", type=int, default=2, help="ranks of --mode ddp outside torchrun")
    parser.add_argument("--batch_size", type=int, default=64, help="examples per rank and step")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--max_steps", type=int, default=0, help="0: no limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="per rank")
    parser.add_argument("--data_workers", type=int, default=2, help="processes per rank")
    parser.add_argument("--tuned", action="store_true",
                        help="channels-last, fused Adam, no denormal numbers")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--log_every", type=int, default=100, help="steps")
    parser.add_argument("--losses", metavar="FILE",
                        help="step losses (mean over ranks), a JSON list")
    parser.add_argument("--step_seconds", metavar="FILE", help="rank 0's step times, a JSON list")
    parser.add_argument("--exposed_seconds", metavar="FILE",
                        help="exposed communication of DDP's steps (mean over ranks), a JSON list")
    parser.add_argument("--save_params", metavar="FILE", help="final weights, safetensors")
    args = parser.parse_args()
    if args.exposed_seconds and args.mode != "ddp":
        parser.error("--exposed_seconds needs --mode ddp")
    return args


def main():
    args, launched = parse_args(), process_start()
    if args.tuned:
        torch.set_flush_denormal(True)
    if args.mode == "single":
        run_rank(0, 1, args, launched)
    elif "RANK" in os.environ:
        run_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args, launched)
    else:
        spawn_ranks(args, launched)


if __name__ == "__main__":
    main()
