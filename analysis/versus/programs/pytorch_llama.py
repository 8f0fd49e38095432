"""Llama in PyTorch from Python: alone, under DDP, with its parameters divided by fully_shard (FSDP2), or with its
layers divided by torch.distributed.tensor.parallel.

    python pytorch_llama.py --data_dir text --model_size mini --max_steps 100
    torchrun --standalone --nproc_per_node 2 pytorch_llama.py --data_dir text --mode tp --max_steps 100

Same seed, same losses as `//trainers:single`, `ddp`, `fsdp` and `tensor_parallel` with `--model=llama
--dataset=text --optimizer=adamw --weight_decay=0.01`.
"""

import dataclasses
import math
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from pytorch_cnn import ExposedCommunication
from pytorch_gpt import Text, loss_of
from reporting import Report, process_start, run_parser, write_list

VOCABULARY, EPSILON, ROPE_THETA, DEVIATION = 256, 1e-5, 500000.0, 0.02


@dataclasses.dataclass(frozen=True)
class Size:
    depth: int
    width: int
    heads: int
    kv_heads: int
    ffn_width: int
    tokens: int

    def head_width(self):
        return self.width // self.heads


SIZES = {"nano": Size(4, 128, 4, 2, 352, 128), "mini": Size(6, 384, 6, 2, 1024, 256)}


def rotary_tables(tokens, features):
    """Returns cos and sin [tokens, features], whose two halves are equal."""
    frequencies = 1.0 / ROPE_THETA ** (torch.arange(0, features, 2).float() / features)
    angles = torch.outer(torch.arange(tokens).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.head_width = size.head_width()
        self.q = nn.Linear(size.width, size.width, bias=False)
        self.k = nn.Linear(size.width, size.kv_heads * self.head_width, bias=False)
        self.v = nn.Linear(size.width, size.kv_heads * self.head_width, bias=False)
        self.projection = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x, cos, sin):
        # [batch, heads of this rank, tokens, features of a head]
        q, k, v = (y.unflatten(-1, (-1, self.head_width)).transpose(1, 2)
                   for y in (self.q(x), self.k(x), self.v(x)))
        q, k = rotate(q, cos, sin).type_as(v), rotate(k, cos, sin).type_as(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.projection(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size.width, size.ffn_width, bias=False)
        self.up = nn.Linear(size.width, size.ffn_width, bias=False)
        self.contract = nn.Linear(size.ffn_width, size.width, bias=False)

    def forward(self, x):
        return self.contract(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm1 = nn.RMSNorm(size.width, eps=EPSILON)
        self.attention = Attention(size)
        self.norm2 = nn.RMSNorm(size.width, eps=EPSILON)
        self.mlp = Mlp(size)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class LlamaModel(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.depth))
        self.norm = nn.RMSNorm(size.width, eps=EPSILON)
        self.head = nn.Linear(size.width, VOCABULARY, bias=False)
        for name, table in zip(("cos", "sin"), rotary_tables(size.tokens, size.head_width())):
            self.register_buffer(name, table, persistent=False)

    @torch.no_grad()
    def draw_weights(self, seed):
        torch.manual_seed(seed)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                residual = name.endswith(("projection.weight", "contract.weight"))
                parameter.normal_(0, DEVIATION / math.sqrt(2 * len(self.blocks)) if residual else DEVIATION)

    def forward(self, tokens):
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x, self.cos[:x.shape[1]], self.sin[:x.shape[1]])
        return self.head(self.norm(x))


def divide(model):
    """Divides every layer among the ranks; between layers, every rank has all tokens and features."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
            "attention.projection": RowwiseParallel(), "mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(),
            "mlp.contract": RowwiseParallel()})
    return parallelize_module(model, mesh, {
        "token": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})


def shard(model):
    """Shards parameters and gathers each block's, and the rest, in forward and backward (ZeRO 3)."""
    for module in (*model.blocks, model):
        fully_shard(module, reshard_after_forward=True)
    return model


PARALLEL = {"single": lambda model: model, "fsdp": shard, "tp": divide,
            "ddp": lambda model: DistributedDataParallel(model, broadcast_buffers=False)}


class Trainer:
    def __init__(self, args, rank, readers):
        self.args, size = args, SIZES[args.model_size]
        model = LlamaModel(size)
        model.draw_weights(args.seed)
        self.model = PARALLEL[args.mode](model)
        self.exposed = ExposedCommunication(model) if args.exposed_seconds else None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, fused=args.tuned or None)
        if args.compile:
            self.model = torch.compile(self.model)
        text = Text(args.data_dir, size.tokens)
        self.sampler = DistributedSampler(text, readers, rank if readers > 1 else 0, seed=args.seed)
        self.loader = DataLoader(text, args.batch_size, sampler=self.sampler, drop_last=True)

    def step(self, tokens, targets):
        self.optimizer.zero_grad()
        with loss_parallel():
            with torch.autocast("cpu", torch.bfloat16, enabled=self.args.precision == "bf16"):
                loss = loss_of(self.model(tokens), targets)
            loss.backward()
        if self.exposed:
            self.exposed.backward_done()
        self.optimizer.step()
        return loss.to_local() if isinstance(loss, DTensor) else loss.detach()

    def batches(self):
        for epoch in range(1, 1 + self.args.max_steps):
            self.sampler.set_epoch(epoch)
            yield from self.loader

    def train(self, report):
        for _, (tokens, targets) in zip(range(self.args.max_steps), self.batches()):
            report.step_done(self.step(tokens, targets))


def mean_over_ranks(values):
    if dist.is_initialized():
        dist.all_reduce(values)
        values /= dist.get_world_size()
    return values.tolist()


def parse_args():
    flags = run_parser(__doc__)
    flags.add_argument("--data_dir", required=True, help="a text file; its bytes are the tokens")
    flags.add_argument("--model_size", choices=list(SIZES), default="nano")
    flags.add_argument("--mode", choices=list(PARALLEL), default="single")
    flags.add_argument("--batch_size", type=int, default=8, help="sequences; with ddp and fsdp, per rank")
    flags.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--tuned", action="store_true", help="fused AdamW, no denormal numbers")
    flags.add_argument("--compile", action="store_true", help="torch.compile")
    flags.add_argument("--exposed_seconds", metavar="FILE",
                       help="exposed communication of DDP's steps (mean over ranks), a JSON list")
    args = flags.parse_args()
    if args.exposed_seconds and args.mode != "ddp":
        flags.error("--exposed_seconds needs --mode ddp")
    return args


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    if args.tuned:
        torch.set_flush_denormal(True)
    if args.mode != "single":
        dist.init_process_group("gloo")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    trainer = Trainer(args, rank, readers=ranks if args.mode in ("ddp", "fsdp") else 1)
    report = Report(rank, process_start(os.getppid() if dist.is_initialized() else "self"))
    trainer.train(report)
    report.losses = mean_over_ranks(torch.stack(report.losses))
    exposed = mean_over_ranks(torch.tensor(trainer.exposed.seconds if trainer.exposed else []))
    report.finish(args)
    if rank == 0:
        write_list(args.exposed_seconds, exposed)
    # All output is written. Destroying Gloo's process groups under fully_shard sometimes aborts in PyTorch 2.11, see
    # pytorch_gpt.py.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
