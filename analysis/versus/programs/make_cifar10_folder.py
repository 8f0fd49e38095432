"""Writes a folder in CIFAR-10's binary format and size, generated from a seed.

    python make_cifar10_folder.py OUT [--seed 0]

Every class has its own coarse colour pattern; each image is that pattern, shifted and faded at random, with
noise. Learnable, but not from a single pixel.
"""

import argparse
import os

import numpy as np

CLASSES = 10
RECORDS_PER_FILE = 10000
FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def class_patterns(rng):
    coarse = rng.normal(size=(CLASSES, 3, 8, 8)).astype(np.float32)
    return np.kron(coarse, np.ones((1, 1, 4, 4), dtype=np.float32))


def make_records(rng, patterns, count):
    labels = rng.integers(CLASSES, size=count)
    strength = rng.uniform(5, 30, size=(count, 1, 1, 1)).astype(np.float32)
    images = patterns[labels]
    for image, (down, right) in zip(images, rng.integers(-4, 5, size=(count, 2))):
        image[:] = np.roll(image, (down, right), axis=(1, 2))
    images *= strength
    images += 128 + 45 * rng.standard_normal(images.shape, dtype=np.float32)
    records = np.empty((count, 1 + 3 * 32 * 32), dtype=np.uint8)
    records[:, 0] = labels
    records[:, 1:] = images.clip(0, 255).reshape(count, -1)
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    patterns = class_patterns(rng)
    for name in FILES:
        make_records(rng, patterns, RECORDS_PER_FILE).tofile(os.path.join(args.out, name))


if __name__ == "__main__":
    main()
