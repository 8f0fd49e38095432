"""Seeded faults: leaves out, one at a time, every wait, event record, synchronisation and device switch that the trainers call for,
and prints which of them a virtual GPU notices. Not a test: takes a trainer run for each place.

  ./bazelw build --config=virtual_gpu //trainers:all //tests/virtual_gpu:with_virtual_gpus
  python3 tests/virtual_gpu/seeded_faults.py [cudaStreamWaitEvent ...]    # these calls alone
"""

import os
import subprocess
import sys
import tempfile

GPT = "--model=gpt --depth=4 --width=64 --sequence_length=32 --batch_size=4"
CASES = [
    "single --model=mlp --device=cuda:1",
    "single --model=mlp --device=cuda --cuda_graph",
    "ddp --model=mlp --nproc=2 --device=cuda",
    f"fsdp {GPT} --nproc=2 --device=cuda --zero=2 --offload_optimizer",
    f"fsdp {GPT} --nproc=2 --device=cuda --zero=3",
    f"data_parallel {GPT} --devices=cuda:0,cuda:1",
    f"tensor_parallel {GPT} --nproc=2 --device=cuda",
    f"pipeline {GPT} --devices=cuda:0,cuda:1 --microbatches=4",
    f"hybrid {GPT} --nproc=4 --device=cuda --dp=2 --pp=2 --schedule=interleaved_1f1b --zero=3 --microbatches=4",
    f"hybrid {GPT} --nproc=2 --device=cuda --cp=2 --microbatches=2",
]
ALWAYS = "--max_steps=12 --eval=false --epochs=1 --train_size=2048 --log_every=4 --collective_timeout=15s"


def run(case, **variables):
    """Runs a case and returns its failure, or ""."""
    trainer, *flags = case.split()
    environment = {**os.environ, "RANKWISE_PEAK": "none", "RANKWISE_VIRTUAL_GPUS": "4", **variables}
    command = ["bazel-bin/tests/virtual_gpu/with_virtual_gpus", f"bazel-bin/trainers/{trainer}", *flags, *ALWAYS.split()]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if "fault:" in line or "error:" in line]
    return (lines or [f"exit code {done.returncode}"])[0]


def functions_of(program):
    """Returns the program's functions as (address, name), ordered by address."""
    lines = subprocess.run(["nm", "--demangle", program], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line.split(" ", 2) for line in lines if line.split(" ", 2)[1:2] in (["t"], ["T"], ["W"])]
    return sorted((int(address, 16), name) for address, _, name in found)


def describe(site, functions):
    call, *addresses = site.split(":")
    names = []
    for text in addresses:
        before = [name for address, name in functions if address <= int(text, 16)]
        names.append(before[-1].split("(")[0].replace("rankwise::", "") if before else text)
    return f"{call} in {' from '.join(names)}"


def main(calls):
    caught = seeded = alarms = 0
    for case in CASES:
        functions = functions_of(f"bazel-bin/trainers/{case.split()[0]}")
        with tempfile.NamedTemporaryFile("r") as sites:
            wrong = run(case, RANKWISE_VIRTUAL_GPU_SITES=sites.name)
            places = sorted(set(sites.read().split()))
        if calls:
            places = [place for place in places if place.split(":")[0] in calls]
        print(f"{case}: {len(places)} places; unchanged: {wrong or 'no alarm'}", flush=True)
        alarms += bool(wrong)
        for place in places:
            noticed = run(case, RANKWISE_VIRTUAL_GPU_SKIP=place)
            seeded += 1
            caught += bool(noticed)
            print(f"  {'caught' if noticed else 'MISSED'}  {describe(place, functions)}  {noticed[:100]}", flush=True)
    print(f"{caught} of {seeded} caught, {alarms} false alarms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
