"""Tests run.py with fake programs and GPUs, which pack_test cannot do without CUDA."""

import argparse
import importlib.util
import json
import os
import stat
import sys
import tempfile
import unittest

SPEC = importlib.util.spec_from_file_location("run", os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.py"))
run = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)

# Writes steps of 64 examples in 1 ms; warm-up steps are a hundred times slower.
TRAINER = """#!/usr/bin/env python3
import json, sys
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
with open(flags["record"], "a") as file:
    for step in range(1, int(flags["max_steps"]) + 1):
        print(json.dumps({"kind": "step", "rank": 0, "step": step, "examples": 64,
                          "step_seconds": 0.1 if step <= 100 else 0.001}), file=file)
"""
PLAIN = "print('examples_per_second %s')\n"


class RunnerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self.folder.cleanup)
        self.here, run.HERE = run.HERE, self.folder.name
        self.addCleanup(setattr, run, "HERE", self.here)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def runner(self, gpus=1, **flags):
        args = argparse.Namespace(**{"out": os.path.join(self.folder.name, "out"), "dry_run": False, "only": None,
                                     "timeout": 20, "repeats": 3, **flags})
        runner = run.Runner(args, "/opt/torch", [f"GPU {i}" for i in range(gpus)])
        runner.missing_libraries = lambda program: []
        return runner

    def compare(self, plain_rate, **flags):
        self.write("trainers/single", TRAINER)
        self.write("tests/gpu/plain_pytorch.py", PLAIN % plain_rate)
        runner = self.runner(**flags)
        runner.compare("some_model", [], [], at_least=3.0, steps=10, warm_up=100)
        return runner.rows[0]

    def test_compares_medians_without_the_warm_up(self):
        row = self.compare(20000)
        self.assertEqual((row["passed"], row["failed"]), (1, 0))
        self.assertEqual(row["reasons"], ["64000 against PyTorch's 20000 examples/s (medians of 3): 3.20 x; wanted 3.0 x"])
        with open(os.path.join(self.folder.name, "out", "some_model.json"), encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)["pytorch"]), 3)

    def test_each_row_is_in_the_summary_at_once(self):
        self.write("trainers/single", "#!/bin/sh\necho peak=$RANKWISE_PEAK\n")
        runner = self.runner()
        summary = os.path.join(runner.args.out, "summary.json")
        for count in (1, 2):
            runner.run_program(f"train_{count}", ["trainers/single"])
            with open(summary, encoding="utf-8") as file:
                written = json.load(file)
            self.assertEqual((len(written["rows"]), written["passed"]), (count, count))
        with open(os.path.join(runner.args.out, "train_1.log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "peak=none\n")

    def test_leaves_out_the_records_of_an_earlier_call(self):
        earlier = json.dumps({"kind": "step", "rank": 0, "step": 101, "examples": 64, "step_seconds": 1})
        for repeat in range(3):
            self.write(f"out/some_model.{repeat}.jsonl", earlier + "\n")
        self.assertIn("64000 against", self.compare(20000)["reasons"][0])

    def test_fails_below_what_was_wanted(self):
        self.assertEqual(self.compare(30000)["failed"], 1)

    def test_fails_where_one_of_the_two_fails(self):
        row = self.compare("none")
        self.assertEqual((row["passed"], row["failed"]), (0, 1))
        self.assertIn("repeat 0", row["reasons"][0])

    def test_compares_nothing_without_a_gpu_or_in_a_dry_run(self):
        self.assertEqual(self.compare(1, gpus=0)["reasons"], ["needs a GPU; 0 visible"])
        self.assertEqual(self.compare(1, dry_run=True)["reasons"], ["dry run"])

    def test_every_benchmark_and_trainer_is_one_row(self):
        for name in ("comm_bench/comm_bench", "comm_bench/cuda/micro", "comm_bench/ladder", "trainers/single", "trainers/ddp", "trainers/fsdp",
                     "trainers/data_parallel", "trainers/tensor_parallel"):
            self.write(name, "#!/bin/sh\nexit 0\n")
        for name in ("trainers/pipeline", "trainers/model_parallel"):
            self.write(name, "#!/bin/sh\nexit 3\n")
        runner = self.runner(gpus=2)
        run.benchmarks(runner)
        run.trainers(runner)
        rows = {row["name"]: row for row in runner.rows}
        self.assertEqual(len(rows), len(runner.rows))
        self.assertEqual({name for name, row in rows.items() if row["failed"]},
                         {name for name in rows if "pipeline" in name or "model_parallel" in name})
        self.assertEqual(rows["train_pipeline"]["reasons"], ["exit code 3"])
        self.assertEqual(rows["train_hybrid"]["skipped"], 1)
        alone = self.runner(gpus=1)
        run.trainers(alone)
        self.assertIn("needs 2 GPUs; 1 visible", [reason for row in alone.rows for reason in row["reasons"]])

    def test_what_hangs_is_ended_with_its_children(self):
        self.write("trainers/ddp", "#!/bin/sh\nsleep 1000 & wait\n")
        runner = self.runner(timeout=0.5)
        runner.run_program("hangs", ["trainers/ddp"])
        self.assertEqual(runner.rows[0]["reasons"], ["did not end within 0.5 s"])

    def test_a_single_rank_sweeps_out_of_place(self):
        self.write("comm_bench/comm_bench", "#!/bin/sh\necho \"$@\"\n")
        self.write("comm_bench/cuda/micro", "#!/bin/sh\nexit 0\n")
        for gpus, wanted in ((1, True), (2, False)):
            runner = self.runner(gpus=gpus, only=["comm_bench_c10d", "comm_bench_nccl", "registered"])
            run.benchmarks(runner)
            self.assertEqual(len(runner.rows), 5)
            for row in runner.rows:
                with open(os.path.join(runner.args.out, row["name"] + ".log"), encoding="utf-8") as file:
                    self.assertEqual("--place=out" in file.read(), wanted, row["name"])

    def test_plain_pytorch_has_no_libraries_of_the_programs(self):
        self.write("path.py", "import os; print(os.environ.get('LD_LIBRARY_PATH', ''))\n")
        self.write("path", f"#!/bin/sh\nexec {sys.executable} path.py\n")
        runner = self.runner()
        self.assertIn("/opt/torch/lib", runner.call("ours", [os.path.join(self.folder.name, "path")])[2])
        self.assertNotIn("/opt/torch/lib", runner.call("plain", [sys.executable, "path.py"])[2])

    def test_runs_only_what_is_named(self):
        self.write("trainers/single", "#!/bin/sh\nexit 0\n")
        runner = self.runner(only=["fp16"])
        run.trainers(runner)
        self.assertEqual([row["name"] for row in runner.rows], ["train_single_fp16_graph"])


if __name__ == "__main__":
    unittest.main()
