"""gpt in PyTorch from Python: its layers divided among ranks by torch.distributed.tensor.parallel, and
with --pp in a pipeline of stages by torch.distributed.pipelining; or, with --fsdp, data-parallel ranks
that divide its parameters by torch.distributed.fsdp.fully_shard.

    torchrun --standalone --nproc_per_node 2 pytorch_gpt.py --data_dir text --max_steps 100
    torchrun --standalone --nproc_per_node 4 pytorch_gpt.py --data_dir text --max_steps 100 --pp 2
    torchrun --standalone --nproc_per_node 2 pytorch_gpt.py --data_dir text --max_steps 100 --fsdp

Same seed, same losses as `//trainers:tensor_parallel`, `//trainers:hybrid` and `//trainers:fsdp` with
`--model=gpt --dataset=text`; those of `hybrid` with `--tied_head=false`, since stages share no weight here.
"""

import argparse
import math
import os
import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, loss_parallel, parallelize_module)
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from reporting import WARM_UP_STEPS, process_start, seconds_since_boot, write_list

VOCABULARY, DEPTH, FEATURES, HEADS, TOKENS = 256, 4, 128, 4, 128  # --model_size=nano
DEVIATION = 0.02


class Text(Dataset):
    """Windows of a file's first nine tenths: tokens, and the ones that follow them."""

    def __init__(self, path, tokens=TOKENS):
        data = np.fromfile(path, dtype=np.uint8)
        data = data[:len(data) - len(data) // 10].astype(np.int64)
        windows = len(data) // (tokens + 1)
        self.windows = torch.from_numpy(data[:windows * (tokens + 1)].reshape(windows, tokens + 1))

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return self.windows[index, :-1], self.windows[index, 1:]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(FEATURES, FEATURES)
        self.k = nn.Linear(FEATURES, FEATURES)
        self.v = nn.Linear(FEATURES, FEATURES)
        self.projection = nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        # [batch, heads of this rank, tokens, features of a head]
        q, k, v = (y.unflatten(-1, (-1, FEATURES // HEADS)).transpose(1, 2)
                   for y in (self.q(x), self.k(x), self.v(x)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Linear(FEATURES, 4 * FEATURES)
        self.contract = nn.Linear(4 * FEATURES, FEATURES)

    def forward(self, x):
        return self.contract(F.gelu(self.expand(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(FEATURES)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(FEATURES)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, FEATURES)
        self.position = nn.Embedding(TOKENS, FEATURES)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(FEATURES)
        self.head = nn.Linear(FEATURES, VOCABULARY, bias=False)
        self.tied = tied
        self.tie()

    def tie(self):
        if self.tied:
            self.head.weight = self.token.weight

    @torch.no_grad()
    def draw_weights(self, seed):
        torch.manual_seed(seed)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" not in name:
                residual = name.endswith(("projection.weight", "contract.weight"))
                parameter.normal_(
                    0, DEVIATION / math.sqrt(2 * DEPTH) if residual else DEVIATION)

    def keep_stage(self, stage, stages):
        per_stage = DEPTH // stages
        self.blocks = self.blocks[stage * per_stage:][:per_stage]
        if stage > 0:
            self.token = self.position = None
        if stage < stages - 1:
            self.norm = self.head = None

    def forward(self, x):
        if self.token is not None:
            x = self.token(x) + self.position(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def divide(model, mesh, sequence_parallel):
    """Divides every layer among the ranks of `mesh`; between layers, every rank has all tokens or its part."""
    between = Shard(1) if sequence_parallel else Replicate()
    norms = {"norm1": SequenceParallel(), "norm2": SequenceParallel()} if sequence_parallel else {}
    for block in model.blocks:
        parallelize_module(block, mesh, norms | {
            "attention": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
            "attention.q": ColwiseParallel(),
            "attention.k": ColwiseParallel(),
            "attention.v": ColwiseParallel(),
            "attention.projection": RowwiseParallel(output_layouts=between),
            "mlp.expand": ColwiseParallel(input_layouts=between),
            "mlp.contract": RowwiseParallel(output_layouts=between)})
    plan = {}
    if model.token is not None:
        plan["token"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
        if sequence_parallel:
            plan["position"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0))
    if model.head is not None:
        plan["head"] = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1),
                                       use_local_output=False)
        if sequence_parallel:
            plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)
    model.tie()  # each layer has divided the weight for itself


def shard(model, mesh):
    """Shards parameters and gathers each block's, and the rest, in forward and backward (ZeRO 3)."""
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    def __init__(self, args, mesh):
        self.args, self.rank = args, dist.get_rank()
        self.stage = 0 if args.fsdp else mesh["pp"].get_local_rank()
        self.last = self.stage == args.pp - 1
        self.model = Gpt(tied=args.pp == 1)
        self.model.draw_weights(args.seed)
        self.model.keep_stage(self.stage, args.pp)
        if args.fsdp:
            shard(self.model, mesh)
        else:
            divide(self.model, mesh["tp"], args.sequence_parallel)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        text = Text(args.data_dir)
        self.replicas = dist.get_world_size() if args.fsdp else 1
        self.sampler = DistributedSampler(text, self.replicas, self.rank if args.fsdp else 0,
                                          shuffle=True, seed=args.seed)
        self.loader = DataLoader(text, args.batch_size * args.microbatches, sampler=self.sampler,
                                 drop_last=True)
        if args.pp > 1:
            stage = PipelineStage(self.model, self.stage, args.pp, torch.device("cpu"),
                                  group=mesh["pp"].get_group())
            self.schedule = Schedule1F1B(stage, args.microbatches, loss_fn=loss_of)
        self.losses, self.step_seconds = [], []

    def forward_backward(self, tokens, targets):
        """Returns the batch's mean loss on ranks of the last stage."""
        if self.args.pp == 1:
            loss = loss_of(self.model(tokens), targets)
            loss.backward()
            return loss.detach()
        losses = []
        self.schedule.step(*([tokens] if self.stage == 0 else []),
                           target=targets if self.last else None,
                           losses=losses if self.last else None, return_outputs=False)
        return torch.stack([loss.detach() for loss in losses]).mean() if self.last else None

    def step(self, tokens, targets):
        self.optimizer.zero_grad()
        with loss_parallel():
            loss = self.forward_backward(tokens, targets)
        self.optimizer.step()
        if self.last:
            self.losses.append(loss.to_local() if isinstance(loss, DTensor) else loss)

    def train(self, launched):
        epoch = 0
        while len(self.step_seconds) < self.args.max_steps:
            epoch += 1
            self.sampler.set_epoch(epoch)
            begin = time.perf_counter()
            for tokens, targets in self.loader:
                self.step(tokens, targets)
                if not self.step_seconds and self.rank == 0:
                    elapsed = seconds_since_boot() - launched
                    print(f"first step done after {elapsed:.3f} s", flush=True)
                now = time.perf_counter()
                self.step_seconds.append(now - begin)
                begin = now
                if len(self.step_seconds) == self.args.max_steps:
                    break

    def finish(self):
        if self.rank == 0:
            seconds = statistics.median(self.step_seconds[WARM_UP_STEPS:] or self.step_seconds)
            print(f"{self.replicas * self.loader.batch_size * TOKENS / seconds:.0f} tokens/s "
                  f"(median step {1000 * seconds:.2f} ms)", flush=True)
            write_list(self.args.step_seconds, self.step_seconds)
        losses = torch.stack(self.losses) if self.last else None
        if self.args.fsdp:
            dist.all_reduce(losses)
            losses /= self.replicas
        if self.rank == dist.get_world_size() - 1:
            write_list(self.args.losses, losses.tolist())


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="a text file; its bytes are the tokens")
    parser.add_argument("--pp", type=int, default=1, help="stages; the ranks of each divide its layers")
    parser.add_argument("--sequence_parallel", action="store_true")
    parser.add_argument("--fsdp", action="store_true",
                        help="ranks train on different data and divide the parameters among them")
    parser.add_argument("--batch_size", type=int, default=8, help="sequences per micro-batch")
    parser.add_argument("--microbatches", type=int, default=1, help="per optimizer step, of --pp")
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1, help="per rank")
    parser.add_argument("--losses", metavar="FILE", help="step losses, a JSON list")
    parser.add_argument("--step_seconds", metavar="FILE", help="rank 0's step times, a JSON list")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    axes = {"dp": ranks} if args.fsdp else {"pp": args.pp, "tp": ranks // args.pp}
    mesh = init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    trainer = Trainer(args, mesh)
    trainer.train(launched=process_start(os.getppid()))
    trainer.finish()
    # PyTorch 2.11 sometimes aborts while it destroys Gloo's process groups under fully_shard ("terminate called
    # without an active exception", 2 of 6 runs). All output is written, so exit without that.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
