"""Writes the goldens next to it with Python's PyTorch; run by hand: python3 generate.py

distributed_sampler.txt holds two kinds of lines:
  list SIZE WORLD_SIZE RANK SEED EPOCH SHUFFLE DROP_LAST : INDICES...
  sweep SIZE DIGEST    the digest over all indices of world size 1..9, every rank, drop_last 0 and 1,
                       shuffle 0 and 1, and (seed, epoch) in SWEEP_SEEDS, in this nesting; for sizes from 1000 on
                       world sizes 2, 3, 8 and the last of SWEEP_SEEDS only
The digest is 64-bit FNV-1a over the indices as little-endian 64-bit integers.
"""
import itertools
import pathlib

import torch
from torch.utils.data.distributed import DistributedSampler

HERE = pathlib.Path(__file__).parent
SWEEP_SEEDS = [(0, 0), (0, 1), (1234, 7)]
SWEEP_SIZES = list(range(1, 258)) + [10000, 50000]


def distributed(size, world_size, rank, seed, epoch, shuffle, drop_last):
    sampler = DistributedSampler(range(size), world_size, rank, shuffle, seed, drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)


def digest(numbers, state=0xCBF29CE484222325):
    for byte in b"".join(number.to_bytes(8, "little") for number in numbers):
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def sweep(size):
    state = digest([])
    worlds = range(1, 10) if size < 1000 else [2, 3, 8]
    for world_size in worlds:
        for rank, drop_last, shuffle in itertools.product(range(world_size), [0, 1], [0, 1]):
            for seed, epoch in SWEEP_SEEDS if size < 1000 else SWEEP_SEEDS[-1:]:
                state = digest(distributed(size, world_size, rank, seed, epoch, bool(shuffle), bool(drop_last)), state)
    return state


def write_distributed(file):
    for size, world_size in [(1, 1), (1, 5), (2, 7), (3, 8), (7, 2), (10, 3), (16, 4), (31, 9)]:
        for rank, drop_last, shuffle in itertools.product(range(world_size), [0, 1], [0, 1]):
            for seed, epoch in [(0, 0), (2**40 + 7, 3)] if shuffle else [(0, 0)]:
                indices = distributed(size, world_size, rank, seed, epoch, bool(shuffle), bool(drop_last))
                fields = ["list", size, world_size, rank, seed, epoch, shuffle, drop_last, ":", *indices]
                print(*fields, file=file)
    for size in SWEEP_SIZES:
        print("sweep", size, f"{sweep(size):016x}", file=file)


with open(HERE / "distributed_sampler.txt", "w") as file:
    write_distributed(file)
