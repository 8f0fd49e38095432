#!/usr/bin/env python3
"""Prints one line per run of a fixed list over all trainers: hashes of its
losses, evaluations and final weights. Two builds that compute the same results
print the same lines:

    ./bazelw build //trainers/...
    tests/parity/fixed_seed_runs.py bazel-bin/trainers > after.txt
    tests/parity/fixed_seed_runs.py OTHER_CHECKOUT/bazel-bin/trainers > before.txt
    diff before.txt after.txt
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

STEPS = 8
GPT = ["--model=gpt", "--depth=4", "--width=64", "--sequence_length=16"]
CNN = ["--model=simple_cnn"]
BATCH_NORM = ["--model=simple_cnn_bn"]
MESH = ["--nproc=4", *GPT, "--batch_size=4", "--microbatches=4"]

# Name of the run: the trainer and its flags.
RUNS = {
    "single simple_cnn": ["single", *CNN],
    "single batch norm, sgd": ["single", *BATCH_NORM, "--optimizer=sgd",
                               "--lr=0.01"],
    "single gpt bf16": ["single", *GPT, "--precision=bf16", "--dropout=0.1"],
    "single accumulate, clip": ["single", *GPT, "--accumulate=2",
                                "--clip_grad_norm=1"],
    "ddp simple_cnn": ["ddp", "--nproc=2", *CNN],
    "ddp batch norm": ["ddp", "--nproc=2", *BATCH_NORM],
    "data_parallel": ["data_parallel", "--replicas=2", *CNN],
    "fsdp zero2 accumulate": ["fsdp", "--nproc=2", "--zero=2", *GPT,
                              "--accumulate=2"],
    "fsdp zero3 recompute": ["fsdp", "--nproc=2", "--zero=3", *GPT,
                             "--recompute"],
    "parameter_server bsp": ["parameter_server", "--nproc=3", *CNN],
    "model_parallel": ["model_parallel", "--nproc=2", "--model=mp_mlp"],
    "pipeline 1f1b": ["pipeline", "--nproc=2", *GPT, "--microbatches=4",
                      "--schedule=1f1b"],
    "pipeline gpipe recompute": ["pipeline", "--nproc=2", *GPT,
                                 "--microbatches=4", "--schedule=gpipe",
                                 "--recompute"],
    "pipeline zbv": ["pipeline", "--nproc=2", *GPT, "--microbatches=4",
                     "--schedule=zbv"],
    "tensor_parallel sequence": ["tensor_parallel", "--nproc=2", *GPT,
                                 "--sequence_parallel"],
    "hybrid pp2 tp2": ["hybrid", *MESH, "--pp=2", "--tp=2"],
    "hybrid pp2 dp2 zero2": ["hybrid", *MESH, "--pp=2", "--dp=2", "--zero=2"],
    "hybrid cp2 dp2 zero3": ["hybrid", "--nproc=4", *GPT, "--batch_size=4",
                             "--cp=2", "--dp=2", "--zero=3"],
}


def digest(chunks):
    total = hashlib.sha256()
    for chunk in chunks:
        total.update(chunk)
    return total.hexdigest()[:16]


def records(path, kind):
    with open(path) as lines:
        parsed = [json.loads(line) for line in lines]
    return [record for record in parsed if record["kind"] == kind]


def losses(path):
    rows = [(r["rank"], r["step"], r["loss"])
            for r in records(path, "step") if r.get("loss") is not None]
    return digest([repr(sorted(rows)).encode()]), len(rows)


def evaluations(path):
    rows = [(r["mean_loss"], r["correct"]) for r in records(path, "eval")]
    return digest([repr(rows).encode()])


def tensors(path):
    """Returns the names and bytes of a safetensors file's tensors, without the
    file's metadata."""
    contents = path.read_bytes()
    header_bytes = int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:8 + header_bytes])
    data = contents[8 + header_bytes:]
    for name in sorted(header):
        if name == "__metadata__":
            continue
        begin, end = header[name]["data_offsets"]
        yield f"{name} {header[name]['dtype']}".encode()
        yield data[begin:end]


def weights(folder):
    files = sorted(folder.glob("model*.safetensors"))
    return digest(chunk for file in files for chunk in tensors(file))


def run(programs, name):
    trainer, *flags = RUNS[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        record = folder / "run.jsonl"
        command = [programs / trainer, *flags, "--threads=1", "--seed=7",
                   f"--max_steps={STEPS}", "--train_size=512",
                   "--test_size=64", "--peak=none", f"--record={record}",
                   f"--checkpoint_dir={folder}"]
        finished = subprocess.run(command, text=True, capture_output=True)
        if finished.returncode != 0:
            print(f"{name:26} exit code {finished.returncode}: "
                  f"{finished.stderr.strip().splitlines()[-1]}", flush=True)
            return False
        loss_digest, count = losses(record)
        print(f"{name:26} losses {loss_digest} ({count})  evaluation "
              f"{evaluations(record)}  weights {weights(folder)}", flush=True)
    return True


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: fixed_seed_runs.py FOLDER_OF_TRAINERS")
    programs = pathlib.Path(sys.argv[1]).resolve()
    if not all([run(programs, name) for name in RUNS]):
        sys.exit(1)


if __name__ == "__main__":
    main()
