"""Writes pytorch_losses.json: the first step losses of the PyTorch program (analysis/versus/programs/pytorch_cnn.py).

    python tests/goldens/make_pytorch_losses.py

Needs the environment of analysis/versus/requirements/pytorch.txt. The images are made by a formula that
tests/parity/pytorch_parity_test.cc repeats, so that no data set has to travel with the repository.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRAIN = os.path.join(os.path.dirname(TESTS), "analysis", "versus", "programs",
                     "pytorch_cnn.py")
PIXELS = 3072
RECORDS_PER_FILE = 10000
STEPS = 20


def mix(x):
    """A pseudo-random bijection of 32-bit integers (the finalizer `lowbias32`)."""
    x = x.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def write_file(path, first_example):
    examples = np.arange(first_example, first_example + RECORDS_PER_FILE, dtype=np.uint32)
    labels = mix(examples) % 10
    noise = mix(examples[:, None] * np.uint32(PIXELS) + np.arange(PIXELS, dtype=np.uint32)[None, :]) & 127
    records = np.empty((RECORDS_PER_FILE, 1 + PIXELS), dtype=np.uint8)
    records[:, 0] = labels
    records[:, 1:] = labels[:, None] * 12 + noise
    records.tofile(path)


def losses(folder, *flags):
    out = os.path.join(folder, "losses.json")
    subprocess.run([sys.executable, TRAIN, "--data_dir", folder, "--max_steps", str(STEPS), "--seed", "0",
                    "--threads", "1", "--losses", out, *flags], check=True)
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def main():
    with tempfile.TemporaryDirectory() as folder:
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
        for i, name in enumerate(names):
            write_file(os.path.join(folder, name), i * RECORDS_PER_FILE)
        goldens = {
            "single_adam_batch_64": losses(folder, "--batch_size", "64", "--optimizer", "adam", "--lr", "0.001"),
            "single_sgd_batch_64": losses(folder, "--batch_size", "64", "--optimizer", "sgd", "--lr", "0.01"),
            "ddp2_adam_batch_32": losses(folder, "--batch_size", "32", "--optimizer", "adam", "--lr", "0.001",
                                         "--mode", "ddp", "--nproc", "2"),
        }
    with open(os.path.join(TESTS, "goldens", "pytorch_losses.json"), "w", encoding="utf-8") as file:
        json.dump(goldens, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
