#!/usr/bin/env python3
"""Runs the packed GPU tests, benchmarks and comparisons of rankwise; see docs/gpu.md.

Needs PyTorch 2.11 as pip installs it, and no Bazel. Leaves logs, records and summary.json in a folder, prints one
table, a row as soon as it is known, and ends with `N passed, N skipped, N failed`; the exit code is 0 without failures,
1 with some, 2 where nothing could be run.
"""

import argparse
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

TORCH_VERSION = "2.11"
HERE = os.path.dirname(os.path.abspath(__file__))
NAME_WIDTH = 44
HEADER = f"{'name':{NAME_WIDTH}}  passed  skipped  failed  seconds"


class Refusal(Exception):
    """Nothing can be run; the text is the reason."""


def find_torch(named):
    """Returns the folder `torch` of the required version."""
    if named:
        folder = os.path.abspath(named)
        version_file = os.path.join(folder, "version.py")
        if not os.path.exists(version_file):
            raise Refusal(f"--torch={named}: no version.py in it; name the folder `torch` of an installed PyTorch")
        with open(version_file, encoding="utf-8") as file:
            version = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", file.read()).group(1)
    else:
        found = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__); print(torch.__file__)"],
                               capture_output=True, text=True, check=False)
        if found.returncode != 0:
            reason = found.stderr.strip().splitlines()[-1:] or ["?"]
            raise Refusal(f"{sys.executable} cannot import torch ({reason[0]}); "
                          f"pip install torch=={TORCH_VERSION}.0, or --torch=DIR")
        version, torch_file = found.stdout.strip().splitlines()[-2:]
        folder = os.path.dirname(torch_file)
    if not (version + ".").startswith(TORCH_VERSION + "."):
        raise Refusal(f"torch {version} in {folder}: these programs are linked to torch {TORCH_VERSION}, and its C++ "
                      f"interface differs between versions; pip install torch=={TORCH_VERSION}.0")
    return folder, version


def library_path(torch):
    site_packages = os.path.dirname(torch)
    folders = [os.path.join(torch, "lib"), *sorted(glob.glob(os.path.join(site_packages, "nvidia", "*", "lib"))),
               os.path.join(HERE, "lib")]
    if os.environ.get("LD_LIBRARY_PATH"):
        folders.append(os.environ["LD_LIBRARY_PATH"])
    return ":".join(folders)


def contents():
    entries = {"test": [], "program": [], "script": [], "configuration": []}
    with open(os.path.join(HERE, "contents"), encoding="utf-8") as file:
        for line in file:
            kind, name = line.rstrip("\n").split("\t")
            entries[kind].append(name)
    return entries


def find_gpus():
    if not shutil.which("nvidia-smi"):
        return [], "no nvidia-smi"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    gpus = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and hidden is not None:
        visible = [entry for entry in hidden.split(",") if entry and entry != "-1"]
        return gpus[:len(visible)], f"CUDA_VISIBLE_DEVICES={hidden}"
    return gpus, "" if gpus else (listed.stdout + listed.stderr).strip()


def median_rate(record_file, warm_up):
    """Returns rank 0's examples per second, from the records of the steps after warm-up."""
    examples = seconds = 0
    with open(record_file, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if entry["kind"] == "step" and entry["rank"] == 0 and entry["step"] > warm_up:
                examples += entry["examples"]
                seconds += entry["step_seconds"]
    return examples / seconds


def row_text(row, width):
    return (f"{row['name']:{width}}  {row['passed']:6}  {row['skipped']:7}  {row['failed']:6}  {row['seconds']:7}"
            f"  {'; '.join(row['reasons'])}").rstrip()


def totals(rows):
    return {key: sum(row[key] for row in rows) for key in ("passed", "skipped", "failed")}


class Runner:
    def __init__(self, args, torch, gpus, facts=None):
        self.args = args
        self.gpus = gpus
        self.facts = {**(facts or {}), "gpus": gpus, "dry_run": args.dry_run}
        self.rows = []
        self.temporary = os.path.join(args.out, "tmp")
        os.makedirs(self.temporary, exist_ok=True)
        # For the packed programs; Python finds torch's libraries itself.
        # Keeps trainers from measuring the GPU's peak at startup.
        self.env = dict(os.environ, LD_LIBRARY_PATH=library_path(torch), TEST_TMPDIR=self.temporary,
                        TEST_SRCDIR=os.path.dirname(HERE), TEST_WORKSPACE=os.path.basename(HERE), RANKWISE_PEAK="none")

    def wanted(self, name):
        return not self.args.only or any(only in name for only in self.args.only)

    def add(self, name, passed=0, skipped=0, failed=0, seconds=0.0, reasons=()):
        row = {"name": name, "passed": passed, "skipped": skipped, "failed": failed, "seconds": round(seconds, 1),
               "reasons": list(dict.fromkeys(reasons))}
        if not self.rows:
            print(HEADER)
        self.rows.append(row)
        print(row_text(row, NAME_WIDTH), flush=True)
        # Written after each row, so that an interrupted run leaves its results.
        partial = os.path.join(self.args.out, "summary.json.part")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({**self.facts, "rows": self.rows, **totals(self.rows)}, file, indent=1)
        os.replace(partial, os.path.join(self.args.out, "summary.json"))

    def call(self, name, command, limit=None):
        """Returns (exit code, seconds, output); logs the output under that name. The code is None after a timeout."""
        env = os.environ if command[0] == sys.executable else self.env
        start = time.monotonic()
        log = os.path.join(self.args.out, name.replace("/", "_") + ".log")
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, cwd=HERE, env=env, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = process.wait(limit or self.args.timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # Ranks started by the program belong to its session, and end with it.
                try:
                    os.killpg(process.pid, 9)
                except ProcessLookupError:
                    pass
                process.wait()
        with open(log, encoding="utf-8", errors="replace") as file:
            return code, time.monotonic() - start, file.read()

    def missing_libraries(self, program):
        listed = subprocess.run(["ldd", os.path.join(HERE, program)], env=self.env, capture_output=True, text=True,
                                check=False)
        text = listed.stdout + listed.stderr
        missing = re.findall(r"^\s*(\S+) => not found", text, re.M)
        missing += re.findall(r"version `([^']+)' not found", text)
        if not missing and listed.returncode != 0:
            missing = [text.strip().splitlines()[-1]]
        return list(dict.fromkeys(missing))

    def libraries_resolve(self, program):
        missing = self.missing_libraries(program)
        if missing:
            self.add(program, failed=1, reasons=["missing: " + ", ".join(missing)])
        return not missing

    @staticmethod
    def why_ended(code, limit):
        if code is None:
            return f"did not end within {limit} s"
        return f"ended by signal {-code}" if code < 0 else f"exit code {code}"

    def run_test(self, test):
        """Adds one row per binary, which counts its tests."""
        if not self.libraries_resolve(test):
            return
        code, seconds, output = self.call(test + ".list", [os.path.join(HERE, test), "--gtest_list_tests"], 60)
        tests = len(re.findall(r"^  \S", output, re.M))
        if code != 0 or tests == 0:
            self.add(test, failed=1, seconds=seconds, reasons=["lists no tests: " + self.why_ended(code, 60)])
            return
        if self.args.dry_run and self.gpus:
            self.add(test, passed=tests, seconds=seconds, reasons=[f"dry run: lists {tests} tests"])
            return
        code, seconds, output = self.call(test, [os.path.join(HERE, test)])
        passed = len(re.findall(r"^\[       OK \]", output, re.M))
        skipped = len(re.findall(r"^\[  SKIPPED \] .*\(\d+ ms\)$", output, re.M))
        failures = re.findall(r"^\[  FAILED  \] ([^ ,]+).*\(\d+ ms\)$", output, re.M)
        reasons = failures + re.findall(r": Skipped\n(.+)", output)
        failed = len(failures)
        if code != 0 and not failed:
            # The program died: tests that did not end did not pass.
            failed = max(1, tests - passed - skipped)
            reasons.insert(0, self.why_ended(code, self.args.timeout))
        self.add(test, passed, skipped, failed, seconds, reasons)

    def run_program(self, name, command, gpus=1):
        """Runs a program that passes by its exit code, on at least `gpus` GPUs."""
        if not self.wanted(name) or not self.libraries_resolve(command[0]):
            return
        if len(self.gpus) < gpus:
            self.add(name, skipped=1, reasons=[f"needs {gpus} GPU{'s' * (gpus > 1)}; {len(self.gpus)} visible"])
            return
        if self.args.dry_run:
            self.add(name, skipped=1, reasons=["dry run"])
            return
        code, seconds, _ = self.call(name, [os.path.join(HERE, command[0]), *command[1:]])
        if code == 0:
            self.add(name, passed=1, seconds=seconds)
        else:
            self.add(name, failed=1, seconds=seconds, reasons=[self.why_ended(code, self.args.timeout)])

    def compare(self, name, trainer_flags, plain_flags, at_least, steps, warm_up):
        """Alternates the trainer and the plain PyTorch script; compares the medians of their examples per second."""
        if not self.wanted(name) or not self.libraries_resolve("trainers/single"):
            return
        if not self.gpus or self.args.dry_run:
            self.add(name, skipped=1, reasons=["dry run" if self.gpus else "needs a GPU; 0 visible"])
            return
        ours, plain = [], []
        start = time.monotonic()
        for repeat in range(self.args.repeats):
            record = os.path.join(self.args.out, f"{name}.{repeat}.jsonl")
            if os.path.exists(record):
                os.remove(record)  # the trainer would append to the record of an earlier call
            code, _, output = self.call(f"{name}.{repeat}.rankwise", [
                os.path.join(HERE, "trainers/single"), "--device=cuda", f"--max_steps={steps + warm_up}", "--epochs=1000",
                "--eval=false", "--progress=false", f"--record={record}", *trainer_flags])
            if code == 0:
                ours.append(median_rate(record, warm_up))
                code, _, output = self.call(f"{name}.{repeat}.pytorch", [
                    sys.executable, os.path.join(HERE, "tests/gpu/plain_pytorch.py"), f"--steps={steps}",
                    f"--warm_up={warm_up}", *plain_flags])
            found = re.search(r"^examples_per_second ([0-9.]+)$", output, re.M)
            if code != 0 or not found:
                self.add(name, failed=1, seconds=time.monotonic() - start,
                         reasons=[f"repeat {repeat}: " + self.why_ended(code, self.args.timeout)])
                return
            plain.append(float(found.group(1)))
        ratio = statistics.median(ours) / statistics.median(plain)
        text = (f"{statistics.median(ours):.0f} against PyTorch's {statistics.median(plain):.0f} examples/s "
                f"(medians of {len(ours)}): {ratio:.2f} x; wanted {at_least} x")
        with open(os.path.join(self.args.out, name + ".json"), "w", encoding="utf-8") as file:
            json.dump({"rankwise": ours, "pytorch": plain, "ratio": ratio, "wanted": at_least}, file, indent=1)
        self.add(name, passed=int(ratio >= at_least), failed=int(ratio < at_least), seconds=time.monotonic() - start,
                 reasons=[text])


def benchmarks(runner):
    out = runner.args.out
    world = max(1, len(runner.gpus))
    runner.run_program("micro", ["comm_bench/cuda/micro", "--benchmark_repetitions=5",
                                 f"--benchmark_out={out}/micro.json", "--benchmark_out_format=json"])
    # A single rank has no peer.
    collectives = "all_reduce,all_gather,reduce_scatter,broadcast" + (",send_recv" if world > 1 else "")
    sweep = ["comm_bench/comm_bench", f"--nproc={world}", "--backend=nccl", "--device=cuda",
             f"--collectives={collectives}", "--max_bytes=256M", f"--record={out}/comm_bench.jsonl"]
    if world == 1:
        # In place NCCL has nothing to do.
        sweep.append("--place=out")
    for layer in ("c10d", "nccl"):
        runner.run_program(f"comm_bench_{layer}", [*sweep, f"--layer={layer}"])
        runner.run_program(f"comm_bench_{layer}_graph", [*sweep, f"--layer={layer}", "--cuda_graph"])
    runner.run_program("comm_bench_registered", [*sweep, "--layer=nccl", "--registered"])
    runner.run_program("comm_bench_ladder", ["comm_bench/ladder", f"--nproc={world}", "--backend=nccl",
                                             "--device=cuda", f"--record={out}/ladder.jsonl"])


def trainers(runner):
    out = runner.args.out
    world = max(1, len(runner.gpus))
    common = ["--max_steps=200", "--train_size=20000", "--test_size=2000", "--progress=false"]
    distributed = [f"--nproc={world}", "--backend=nccl", "--device=cuda", *common]
    runner.run_program("train_single", ["trainers/single", "--device=cuda", f"--record={out}/single.jsonl", *common])
    runner.run_program("train_single_fp16_graph", ["trainers/single", "--device=cuda", "--precision=fp16",
                                                   "--cuda_graph", f"--record={out}/single_fp16.jsonl", *common])
    runner.run_program("train_ddp", ["trainers/ddp", f"--record={out}/ddp.jsonl", *distributed])
    runner.run_program("train_ddp_graph", ["trainers/ddp", "--cuda_graph", f"--record={out}/ddp_graph.jsonl",
                                           *distributed])
    runner.run_program("train_ddp_sync_batch_norm", ["trainers/ddp", "--model=simple_cnn_bn", "--sync_batch_norm",
                                                     f"--record={out}/ddp_sync.jsonl", *distributed])
    runner.run_program("train_data_parallel", ["trainers/data_parallel", f"--record={out}/data_parallel.jsonl",
                                               *common])
    staged = ["--nproc=2", *distributed[1:]]
    runner.run_program("train_model_parallel", ["trainers/model_parallel", f"--record={out}/model_parallel.jsonl",
                                                *staged], gpus=2)
    runner.run_program("train_pipeline", ["trainers/pipeline", f"--record={out}/pipeline.jsonl", *staged], gpus=2)
    runner.run_program("train_pipeline_one_process", ["trainers/pipeline", "--devices=cuda:0,cuda:1",
                                                      f"--record={out}/pipeline_one.jsonl", *common], gpus=2)
    runner.run_program("train_fsdp", ["trainers/fsdp", "--zero=3", "--model=gpt", f"--record={out}/fsdp.jsonl",
                                      *distributed])
    runner.run_program("train_tensor_parallel", ["trainers/tensor_parallel", "--model=gpt",
                                                 f"--record={out}/tensor_parallel.jsonl", *staged], gpus=2)
    runner.run_program("train_hybrid", ["trainers/hybrid", "--pp=2", "--tp=2", "--model=gpt",
                                        f"--record={out}/hybrid.jsonl", "--nproc=4", *distributed[1:]], gpus=4)


def comparisons(runner):
    runner.compare("simple_cnn_vs_pytorch",
                   ["--model=simple_cnn", "--batch_size=64", "--cuda_graph", "--data_workers=4"],
                   ["--model=simple_cnn", "--batch_size=64"], at_least=3.0, steps=500, warm_up=100)
    # The same kernels do most of the work of both: equal up to noise.
    runner.compare("gpt2_bf16_vs_pytorch",
                   ["--model=gpt", "--model_size=gpt2", "--precision=bf16", "--batch_size=8", "--train_size=2000",
                    "--optimizer=adamw", "--weight_decay=0.01"],
                   ["--model=gpt2", "--batch_size=8"], at_least=0.97, steps=50, warm_up=20)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry_run", action="store_true",
                        help="everything up to the first CUDA call: libraries resolve and tests are listed; without a "
                        "GPU tests are run, too, and skip themselves")
    parser.add_argument("--only", action="append", metavar="NAME", help="run what has NAME in its name; may be repeated")
    parser.add_argument("--out", default="gpu_run", metavar="DIR", help="folder for logs, records and summary.json")
    parser.add_argument("--torch", metavar="DIR", help="the folder `torch` to use; default: what python3 imports")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for one program")
    parser.add_argument("--repeats", type=int, default=5, help="of each comparison with PyTorch")
    return parser.parse_args()


def main():
    args = parse_arguments()
    args.out = os.path.abspath(args.out)
    entries = contents()
    configuration = entries["configuration"][0]
    try:
        torch, version = find_torch(args.torch)
        gpus, why_none = find_gpus()
        if configuration != "cuda" and not args.dry_run:
            raise Refusal("these programs were built without CUDA; bazel build --config=cuda //tests/gpu:pack")
        os.makedirs(args.out, exist_ok=True)
    except Refusal as refusal:
        print(f"run: {refusal}", file=sys.stderr)
        return 2
    print(f"torch {version} in {torch}; built for {configuration}")
    print("\n".join(gpus) if gpus else f"no GPU: {why_none}")
    runner = Runner(args, torch, gpus, {"torch": version, "configuration": configuration})
    for test in filter(runner.wanted, entries["test"]):
        runner.run_test(test)
    if args.dry_run:
        # Each program once, although several tests start it.
        for program in filter(runner.wanted, entries["program"]):
            if runner.libraries_resolve(program):
                runner.add(program, passed=1, reasons=["dry run: libraries resolve"])
    else:
        benchmarks(runner)
        trainers(runner)
        comparisons(runner)
    shutil.rmtree(runner.temporary, ignore_errors=True)
    if not runner.rows:
        print(f"run: nothing has {' or '.join(args.only)} in its name", file=sys.stderr)
        return 2
    counts = totals(runner.rows)
    print("{passed} passed, {skipped} skipped, {failed} failed".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
