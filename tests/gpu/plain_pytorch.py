#!/usr/bin/env python3
"""The trainers' models in plain, eager PyTorch, for comparison on a GPU.

SimpleCNN: fp32, Adam. GPT-2 of 124 M parameters: bf16 autocast, scaled-dot-product attention, fused AdamW. As in the
trainers, nothing rounds to TF32 without --tf32. Batches are on the GPU before the clock starts: the timing leaves out
the loading that the trainers do, which favours PyTorch. Prints `examples_per_second N`.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCHES = 16


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 8 * 8, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    VOCABULARY, LENGTH = 50257, 1024

    def __init__(self, depth=12, width=768, heads=12):
        super().__init__()
        self.token = nn.Embedding(self.VOCABULARY, width)
        self.position = nn.Embedding(self.LENGTH, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[:tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.token.weight).flatten(0, 1)


def make_batches(model, batch_size, device):
    if model == "simple_cnn":
        return [(torch.randn(batch_size, 3, 32, 32, device=device), torch.randint(10, (batch_size,), device=device))
                for _ in range(BATCHES)]
    tokens = torch.randint(Gpt2.VOCABULARY, (BATCHES, batch_size, Gpt2.LENGTH + 1), device=device)
    return [(batch[:, :-1].contiguous(), batch[:, 1:].flatten()) for batch in tokens]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["simple_cnn", "gpt2"], default="simple_cnn")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--warm_up", type=int, default=100, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tf32", action="store_true", help="matrix products and convolutions may round to TF32")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    torch.manual_seed(0)
    device = torch.device("cuda")
    if args.model == "simple_cnn":
        net = SimpleCnn().to(device)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    else:
        net = Gpt2().to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    batches = make_batches(args.model, args.batch_size, device)
    for step in range(args.warm_up + args.steps):
        if step == args.warm_up:
            torch.cuda.synchronize()
            start = time.perf_counter()
        x, target = batches[step % BATCHES]
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.model == "gpt2"):
            loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(f"loss {loss.item():.4f}")
    print(f"examples_per_second {args.steps * args.batch_size / seconds:.1f}")


if __name__ == "__main__":
    main()
