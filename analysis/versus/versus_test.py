"""Tests of the comparison that need no framework."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import comparison
import environments
import limit
import runs
import versus
from frameworks import (FRAMEWORKS, NOT_COMPARED, PROGRAMS, PythonProgram, Rankwise, compiled_pytorch,
                        other_trainers, tuned_pytorch)
from works import CASES, TABLES, GptWork, PipelineWork, Work


def result(step_seconds=0.1, exposed_seconds=(), losses=(2.0, 1.0), pss=100.0, whole=10.0):
    warm_up = [9.0] * comparison.WARM_UP_STEPS
    return runs.Result(losses=list(losses), step_seconds=warm_up + [step_seconds] * 5,
                       exposed_seconds=(warm_up + list(exposed_seconds)) if exposed_seconds else [],
                       first_step_seconds=0.5, reported_first_step_seconds=0.5, whole_seconds=whole,
                       peak_pss_mib=pss, params_file="")


def case(name, world_size, ours, theirs, **others):
    work = Work(data_dir="", world_size=world_size, batch_size=64, threads=2, max_steps=15)
    return comparison.Case(name, work, {"rankwise": ours, "PyTorch": theirs} | others)


def python_command(framework, work):
    return PythonProgram(FRAMEWORKS[framework], "python3").command(work)


class Cores(unittest.TestCase):
    def quota(self, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root + name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return versus.cpu_quota(root)

    def test_the_lowest_quota_of_the_groups_counts(self):
        files = {"/proc/self/cgroup": "0::/user/job\n",
                 "/proc/self/mountinfo": "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n",
                 "/cg/user/cpu.max": "150000 100000\n", "/cg/user/job/cpu.max": "max 100000\n"}
        self.assertEqual(self.quota(files), 1.5)
        container = {"/proc/self/cgroup": "4:memory:/docker/1f\n1:cpu,cpuacct:/docker/1f\n0::/\n",
                     "/proc/self/mountinfo": "32 31 0:29 /docker/1f /cg/cpu ro - cgroup cgroup rw,cpu,cpuacct\n",
                     "/cg/cpu/cpu.cfs_quota_us": "200000\n", "/cg/cpu/cpu.cfs_period_us": "100000\n"}
        self.assertEqual(self.quota(container), 2)
        container["/cg/cpu/cpu.cfs_quota_us"] = "-1\n"
        self.assertEqual(self.quota(container), float("inf"))
        self.assertEqual(self.quota({"/proc/self/cgroup": "nonsense\n", "/proc/self/mountinfo": "\n - cgroup2\n"}),
                         float("inf"))

    def test_no_more_than_the_affinity_mask_or_the_quota(self):
        with mock.patch("os.sched_getaffinity", return_value={0, 1, 2, 3}):
            for quota, cores in ((float("inf"), 4), (2.5, 2), (0.5, 1), (8, 4)):
                with mock.patch("versus.cpu_quota", return_value=quota):
                    self.assertEqual(versus.cores(), cores)


class Table(unittest.TestCase):
    def test_medians_and_ratios_of_neighbours(self):
        text = comparison.table([case("fp32", 0, [result(0.1), result(0.2), result(pss=50)],
                                      [result(0.2), result(0.8), result(pss=200)])])
        lines = text.splitlines()
        self.assertEqual(lines[0], "|  | rankwise | PyTorch | ratio |")
        # Ours: 640 and 320 images/s; theirs: 320 and 80.
        self.assertIn("| fp32, 1 rank x 2 threads: images/s | 480 | 200 | 2.40 (2.00 to 4.00) |",
                      lines)
        self.assertIn("| fp32: peak memory (PSS of all processes), MiB | 50 | 200 | 0.25 |", lines)
        self.assertNotIn("exposed", text)

    def test_exposed_communication_is_of_ddp(self):
        ours = [result(0.1, [0.01, 0.01, 0.04]), result()]
        theirs = [result(0.2, [0.02]), result()]
        text = comparison.table([case("ddp", 2, ours, theirs)])
        self.assertIn("| ddp: comm wait, ms a step | 10 | 20 | 0.50 |", text)
        self.assertIn("| ddp: comm wait, % of the time | 20 | 10 | 2.00 |", text)

    def test_an_epoch_is_timed_from_launch_to_end(self):
        steps = case("fp32", 0, [result(whole=12), result()], [result(whole=30), result()])
        epoch = dataclasses.replace(steps, work=dataclasses.replace(steps.work, max_steps=0))
        # 15 steps of 64 images.
        self.assertIn("| fp32: images/s of an epoch, launch to end | 80 | 32 | 2.50 |", comparison.table([epoch]))
        self.assertIn("| fp32: an epoch with its evaluation, launch to end, s | 12 | 30 | 0.40 |",
                      comparison.table([epoch]))
        self.assertNotIn("launch to end", comparison.table([steps]))

    def test_loss_difference_is_the_largest(self):
        found = comparison.loss_differences(
            case("fp32", 0, [result(losses=(2, 1))], [result(losses=(2.5, 1.25))], JAX=[result(losses=(2, 1.5))]))
        self.assertEqual(found, {"PyTorch": 0.5, "JAX": 0.5})

    def test_a_program_without_a_result_has_no_figure(self):
        one = case("fp32", 0, [result(), result()], [result(), result()], JAX=[result(0.2), result()])
        two = case("ddp", 2, [result(exposed_seconds=[0.01]), result()],
                   [result(exposed_seconds=[0.02]), result()])
        lines = comparison.table([one, two]).splitlines()
        self.assertEqual(lines[0], "|  | rankwise | PyTorch | ratio | JAX | ratio |")
        self.assertIn("| fp32, 1 rank x 2 threads: images/s | 640 | 640 | 1.00 | 320 | 2.00 |", lines)
        self.assertIn("| ddp: comm wait, ms a step | 10 | 20 | 0.50 | - | - |", lines)
        self.assertIn("| ddp: peak memory (PSS of all processes), MiB | 100 | 100 | 1.00 | - | - |", lines)

    def test_says_why_a_program_has_no_figures(self):
        cases = [dataclasses.replace(case(name, 2, [result()], [result()]), reasons={"JAX": "no schedules"})
                 for name in ("tp", "pp")]
        self.assertEqual(comparison.reasons(cases), ["JAX has no tp, pp: no schedules."])

    def test_counts_lines_without_comments_and_docstrings(self):
        with tempfile.TemporaryDirectory() as folder:
            python, cpp = pathlib.Path(folder, "a.py"), pathlib.Path(folder, "a.cc")
            python.write_text('"""What.\n\nWhy.\n"""\n\nimport os  # here\n\n\ndef f():\n'
                              '    """One line."""\n    # a comment\n    return os\n')
            cpp.write_text("// What.\n\nint main() {  // here\n}\n")
            self.assertEqual(comparison.lines_of_code(python), 3)
            self.assertEqual(comparison.lines_of_code(cpp), 2)


def gpt_case(ours=(2.0, 1.0), theirs=(2.0, 1.0), **work):
    work = GptWork(data_dir="text", **({"world_size": 2, "batch_size": 8, "max_steps": 15} | work))
    return comparison.Case("tp", work, {"rankwise": [result(0.1, losses=ours), result()],
                                        "PyTorch": [result(0.4, losses=theirs), result()]})


class Gpt(unittest.TestCase):
    def test_counts_tokens_and_no_exposed_communication(self):
        text = comparison.table([gpt_case()])
        # 8 sequences of 128 tokens in 0.1 and 0.4 s.
        self.assertIn("| tp, 2 ranks x 1 thread: tokens/s | 10240 | 2560 | 4.00 |", text)
        self.assertNotIn("exposed", text)

    def test_losses_that_differ_by_more_than_rounding_are_reported(self):
        same, different = gpt_case(theirs=(2.0, 1.00009)), gpt_case(theirs=(2.0, 1.00011))
        undefined = gpt_case(theirs=(2.0, float("nan")))
        self.assertEqual(comparison.too_different([same]), [])
        self.assertEqual(comparison.too_different([same, different]),
                         ["tp: losses of PyTorch differ by 1.1e-04; the bound is 1e-04"])
        self.assertEqual(len(comparison.too_different([undefined])), 1)

    def test_two_programs_take_the_same_flags(self):
        work = gpt_case(world_size=4, stages=2, micro_batches=8, sequence_parallel=True).work
        ours = work.rankwise_command({"hybrid": "bin/hybrid"})
        theirs = python_command("pytorch", work)
        self.assertEqual(ours[0], "bin/hybrid")
        self.assertIn("--tp=2", ours)
        self.assertIn("--nproc_per_node=4", theirs)
        for flag in ("--pp=2", "--microbatches=8", "--batch_size=8", "--sequence_parallel"):
            self.assertIn(flag, ours)
            self.assertIn(flag, theirs)

    def test_without_stages_all_ranks_divide_the_layers(self):
        ours = gpt_case().work.rankwise_command({"tensor_parallel": "bin/tensor_parallel"})
        self.assertEqual(ours[0], "bin/tensor_parallel")
        self.assertFalse([flag for flag in ours if flag.startswith(("--pp", "--tp", "--seq"))])


class Sharded(unittest.TestCase):
    def test_ranks_train_on_different_data(self):
        sharded = gpt_case(data_parallel="fsdp")
        # 2 ranks, 8 sequences of 128 tokens each, in 0.1 s.
        self.assertIn("| tp, 2 ranks x 1 thread: tokens/s | 20480 |", comparison.table([sharded]))
        self.assertEqual(sharded.work.batch(), "8 sequences of 128 tokens a rank")
        self.assertIn("--fsdp", python_command("pytorch", sharded.work))
        self.assertNotIn("--fsdp", python_command("pytorch", gpt_case().work))

    def test_ddp_does_the_same_work(self):
        trainers = {"fsdp": "bin/fsdp", "ddp": "bin/ddp"}
        work = gpt_case(data_parallel="fsdp").work
        with mock.patch.object(Rankwise, "run", lambda self, work, folder: work):
            unsharded = other_trainers(trainers)[0].run(work, "folder")
        ours, ddp = work.rankwise_command(trainers), unsharded.rankwise_command(trainers)
        self.assertEqual((ours[0], ddp[0]), ("bin/fsdp", "bin/ddp"))
        self.assertEqual([flag for flag in ours if flag not in ddp], ["bin/fsdp", "--zero=3"])
        self.assertEqual(ours[1:-1], ddp[1:])


class Llama(unittest.TestCase):
    trainers = {name: f"bin/{name}" for name in versus.TRAINERS}

    def work(self, name):
        kind, options = CASES[name]
        return kind(data_dir="text", max_steps=15, **options)

    def test_two_programs_take_the_same_flags(self):
        for name, trainer, mode in (("llama_fp32", "single", None), ("llama_bf16", "single", None),
                                    ("llama_ddp", "ddp", "ddp"), ("llama_fsdp", "fsdp", "fsdp"),
                                    ("llama_tp", "tensor_parallel", "tp")):
            with self.subTest(case=name):
                work = self.work(name)
                ours, theirs = work.rankwise_command(self.trainers), python_command("pytorch", work)
                self.assertEqual(ours[:2], [f"bin/{trainer}", "--model=llama"])
                self.assertEqual([flag for flag in work.shared_flags() if flag not in ours or flag not in theirs], [])
                self.assertEqual([flag for flag in theirs if flag.startswith("--mode=")],
                                 [f"--mode={mode}"] if mode else [])
                self.assertEqual("--nproc=2" in ours, mode is not None)
                self.assertEqual("--nproc_per_node=2" in theirs, mode is not None)
                self.assertTrue({"--optimizer=adamw", "--weight_decay=0.01"} <= set(ours))

    def test_counts_the_tokens_of_its_size(self):
        self.assertEqual({name: self.work(name).units_per_step() for name in CASES if name.startswith("llama")},
                         {"llama_fp32": 2048, "llama_bf16": 2048, "llama_ddp": 2048, "llama_fsdp": 2048,
                          "llama_tp": 1024})
        self.assertIn("--model_size=mini", self.work("llama_bf16").shared_flags())
        self.assertIn("--precision=bf16", self.work("llama_bf16").shared_flags())

    def test_tuned_and_compiled_pytorch(self):
        able = [[name for name in CASES if name.startswith("llama") and not framework.cannot(self.work(name))]
                for framework in (tuned_pytorch(), compiled_pytorch())]
        self.assertEqual(able, [["llama_fp32", "llama_bf16", "llama_ddp", "llama_fsdp", "llama_tp"],
                                ["llama_fp32", "llama_bf16"]])

    def test_only_sharded_runs_are_compared_with_ddp(self):
        ddp = other_trainers(self.trainers)[0]
        self.assertEqual([name for name in ("llama_fp32", "llama_ddp", "llama_fsdp", "llama_tp")
                          if not ddp.cannot(self.work(name))], ["llama_fsdp"])


class Pipeline(unittest.TestCase):
    trainers = {"pipeline": "bin/pipeline", "single": "bin/single"}

    def test_two_programs_take_the_same_flags(self):
        work = PipelineWork(batch_size=32, max_steps=20)
        ours, theirs = work.rankwise_command(self.trainers), python_command("pytorch", work)
        self.assertEqual([flag for flag in work.shared_flags() if flag not in ours or flag not in theirs], [])
        self.assertIn("--microbatches=8", set(ours) & set(theirs))
        self.assertIn("--train_size=5120", ours)

    def test_one_rank_does_the_same_work(self):
        work = PipelineWork(batch_size=32, max_steps=20)
        with mock.patch.object(Rankwise, "run", lambda self, work, folder: work):
            alone = other_trainers(self.trainers)[1].run(work, "folder")
        command = alone.rankwise_command(self.trainers)
        self.assertEqual(command[0], "bin/single")
        self.assertIn("--accumulate=8", command)
        self.assertEqual(alone.units_per_step(), work.units_per_step())

    def test_waiting_is_no_exposed_communication(self):
        runs_of_one = [result(0.1, [0.01]), result()]
        text = comparison.table([comparison.Case("1f1b_32", PipelineWork(batch_size=32, max_steps=20),
                                                 {"rankwise": runs_of_one, "rankwise, 1 rank": runs_of_one})])
        self.assertIn("| 1f1b_32, 2 ranks x 1 thread: examples/s | 2560 | 2560 | 1.00 |", text)
        self.assertNotIn("exposed", text)


class Limit(unittest.TestCase):
    """limit.py, with a stub in place of the trainer."""

    TRAINER = """#!{python}
import json, os, sys
assert "--data_dir=images" in sys.argv and os.environ["XDG_CACHE_HOME"] != "/kept"
run = dict(kind="run", forward_flops_per_example=1e6, peak_flops_per_second=8e9)
step = dict(kind="step", examples=64, step_seconds={seconds}, data_wait_seconds=0.001, forward_seconds=0.02,
            backward_seconds=0.02, optimizer_seconds={seconds} - 0.042)
warm_up = step | dict(step_seconds=9)
record = next(arg.split("=", 1)[1] for arg in sys.argv if arg.startswith("--record="))
with open(record, "w") as file:
    file.writelines(json.dumps(entry) + "\\n" for entry in [run] + 10 * [warm_up] + 5 * [step])
"""

    def measure(self, *seconds):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            binaries = [pathlib.Path(folder, f"single{i}") for i in range(len(seconds))]
            for binary, time_of_step in zip(binaries, seconds):
                binary.write_text(self.TRAINER.format(python=sys.executable, seconds=time_of_step))
                binary.chmod(0o755)
            stack.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": "/kept"}))
            stack.enter_context(mock.patch.object(sys, "argv", [
                "limit", "--only=cnn_fp32", "--runs=2", "--data_dir=images", *(f"--binary={path}" for path in binaries)]))
            printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            limit.main()
            return printed.getvalue().replace(folder + "/", "").splitlines()

    def test_shares_of_the_product_and_of_the_step(self):
        # 3 x 64 MFLOP in 0.05 s.
        self.assertEqual(self.measure(0.05)[2:], ["| cnn_fp32 | 50.0 (50.0 to 50.0) | 4 | 8 (8 to 8) "
                                                  "| 48.0 (48.0 to 48.0) % | 2.00 % | 4.00 % |"])

    def test_a_disturbed_product_makes_no_share_above_100_percent(self):
        run = {"ms": 50.0, "gflops": 4.0, "product": 8.0, "wait": 0.0, "outside": 0.0}
        disturbed = run | {"product": 3.0}  # 133 % of its own
        self.assertIn("| 50.0 (50.0 to 50.0) % |", limit.row("case", [run, disturbed], 8.0, None))

    def test_compares_builds(self):
        lines = self.measure(0.05, 0.1)
        self.assertEqual(lines[0].split(" | ")[-1], "speed against single0 |")
        self.assertEqual([line.split(" | ")[-1] for line in lines[2:]],
                         ["1.00 (1.00 to 1.00) |", "0.50 (0.50 to 0.50) |"])


class ReadSteps(unittest.TestCase):
    def test_means_over_ranks_and_rank_zeros_times(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"kind":"run","rank":0}\n')
            for rank, loss in ((1, 3.0), (0, 1.0)):
                file.write(json.dumps({"kind": "step", "rank": rank, "step": 1, "loss": loss,
                                       "step_seconds": 0.1 + rank,
                                       "exposed_comm_seconds": 0.25 * loss}) + "\n")
            file.flush()
            self.assertEqual(runs.read_steps(file.name), {
                "losses": [2.0], "exposed_seconds": [0.5], "step_seconds": [0.1]})


class Frameworks(unittest.TestCase):
    def works(self):
        return {name: kind(**({"batch_size": 64, "threads": 1, "max_steps": 15} | options), data_dir="data",
                           start="start.npz") for name, (kind, options) in CASES.items()}

    def test_every_case_has_a_table(self):
        self.assertEqual([name for names in TABLES for name in names], list(CASES))

    def test_every_program_exists_or_says_why_not(self):
        for framework in [*FRAMEWORKS.values(), tuned_pytorch(), compiled_pytorch()]:
            self.assertIn(framework.environment, environments.ENVIRONMENTS)
            program = PythonProgram(framework)
            for name, work in self.works().items():
                with self.subTest(framework=framework.title, case=name):
                    if not program.cannot(work):
                        self.assertTrue(program.source(work).is_file())
                        self.assertGreater(comparison.lines_of_code(program.source(work)), 40)
                        self.assertGreater(comparison.lines_of_code(Rankwise({}).source(work)), 10)

    def test_what_each_is_compared_in(self):
        able = {name: [case for case, work in self.works().items() if not framework.cannot(work)]
                for name, framework in FRAMEWORKS.items()}
        self.assertEqual(able, {
            "pytorch": list(CASES),
            "jax": [name for name, work in self.works().items()
                    if work.stages == 1 and work.max_steps and work.model != "llama"],
            "tensorflow": ["fp32", "bf16", "ddp"], "deepspeed": ["fsdp"]})
        self.assertNotEqual(FRAMEWORKS["tensorflow"].cannot(self.works()["tp"]), NOT_COMPARED)

    def test_programs_without_pytorch_begin_with_its_weights_and_order(self):
        works = self.works()
        self.assertEqual(python_command("jax", works["fp32"]), [
            "python3", str(PROGRAMS / "jax_cnn.py"), "--data_dir=data", "--start=start.npz", "--threads=1",
            "--max_steps=15", "--lr=0.001", "--precision=fp32"])
        self.assertEqual(python_command("tensorflow", works["ddp"])[:3],
                         ["python3", str(PROGRAMS / "launch.py"), "--nproc=2"])
        sequence = python_command("jax", works["tp_sequence"])
        self.assertEqual(sequence[-2:], ["--parallel=tp", "--sequence_parallel"])
        self.assertEqual(python_command("jax", works["fsdp"])[-1], "--parallel=fsdp")

    def test_an_epoch_takes_the_same_flags(self):
        work = self.works()["epoch_bf16"]
        ours, theirs = work.rankwise_command({"single": "bin/single"}), python_command("pytorch", work)
        self.assertEqual(ours, ["bin/single", "--dataset=cifar10", *work.shared_flags()])
        self.assertEqual(theirs, ["python3", str(PROGRAMS / "pytorch_cnn.py"), *work.shared_flags()])
        self.assertEqual([flag for flag in ours if "epoch" in flag or "steps" in flag], ["--max_steps=0", "--epochs=1"])

    def test_readers_of_different_examples(self):
        works = self.works()
        self.assertEqual({name: (work.readers(), work.examples_per_reader()) for name, work in works.items()}, {
            "fp32": (1, 64), "bf16": (1, 64), "ddp": (2, 64), "epoch_fp32": (1, 64), "epoch_bf16": (1, 64), "tp": (1, 8), "tp_sequence": (1, 8),
            "pp_tp": (1, 16), "fsdp": (2, 8), "llama_fp32": (1, 8), "llama_bf16": (1, 8),
            "llama_ddp": (2, 8), "llama_fsdp": (2, 8), "llama_tp": (1, 8),
            "1f1b_32": (1, 256), "1f1b_64": (1, 512), "1f1b_128": (1, 1024),
            "zero_bubble_32": (1, 256), "zero_bubble_64": (1, 512), "zero_bubble_128": (1, 1024)})

    def test_unknown_names_are_refused(self):
        self.assertIn("'theano' is none of pytorch, jax, tensorflow, deepspeed",
                      self.refused("--frameworks=pytorch,theano"))

    def test_a_folder_without_images_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn(f"--data_dir={folder}: holds no data_batch_1.bin", self.refused(f"--data_dir={folder}"))

    def refused(self, flag):
        with mock.patch.object(sys, "argv", ["versus", flag]), \
                contextlib.redirect_stderr(io.StringIO()) as stderr:
            self.assertRaises(SystemExit, versus.parse_args)
        return stderr.getvalue()

    def test_a_script_that_fails_ends_it_without_a_traceback(self):
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(SystemExit, "versus: start.py failed, see above"):
            versus.run_script("false", "start.py")


# Stubs of a trainer and of a framework's program.
TRAINER = """#!{python}
import json, sys, time
record = next(arg.split("=", 1)[1] for arg in sys.argv if arg.startswith("--record="))
with open(record, "w") as file:
    for step in range(1, 4):
        for rank in (0, 1):
            file.write(json.dumps(dict(kind="step", rank=rank, step=step, loss=2.0 - step / 10,
                                       step_seconds=0.1, exposed_comm_seconds=0.01)) + "\\n")
print("first step done after 0.1 s", flush=True)
time.sleep(0.3)
"""
PROGRAM = """
import os, sys, time
sys.path.append({programs!r})
from reporting import Report, parser, process_start
flags = parser("Stub.")
flags.add_argument("--precision")
args = flags.parse_args()
report = Report(int(os.environ["RANK"]), process_start(os.getppid()))
for step in range(1, 1 + args.max_steps):
    time.sleep(0.1)
    report.step_done(2.0 - step / 10 + {error})
report.finish(args)
"""


class EndToEnd(unittest.TestCase):
    """The driver with real processes, but without trainers and frameworks."""

    def compare(self, error, *flags, bound=None):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            trainer, program = pathlib.Path(folder, "ddp"), pathlib.Path(folder, "stub.py")
            trainer.write_text(TRAINER.format(python=sys.executable))
            trainer.chmod(0o755)
            pathlib.Path(folder, "data_batch_1.bin").touch()
            program.write_text(PROGRAM.format(programs=str(PROGRAMS), error=error))
            stub = dataclasses.replace(FRAMEWORKS["tensorflow"], title="Stub", environment="jax",
                                       programs={"cnn": str(program)}, needs_start=False)
            stack.enter_context(mock.patch.dict(FRAMEWORKS, {"stub": stub}))
            stack.enter_context(mock.patch.object(Work, "loss_bound", bound))
            stack.enter_context(mock.patch.object(versus, "find", lambda environment: sys.executable))
            stack.enter_context(mock.patch.object(versus, "version_in", lambda *_: ("1.2", "")))
            stack.enter_context(mock.patch.object(sys, "argv", [
                "versus", "--frameworks=stub", "--only=ddp", "--runs=2", "--steps=3", f"--data_dir={folder}",
                f"--ddp={trainer}", *flags]))
            printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            versus.main()
            return printed.getvalue()

    def test_prints_what_the_programs_report(self):
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            text = self.compare(0.5, f"--out={out.name}")
            samples = json.load(out)
        lines = text.splitlines()
        self.assertIn("|  | rankwise | Stub | ratio |", lines)
        # 2 ranks with 64 images each, in 0.1 s; the stub sleeps that long.
        self.assertRegex(text, r"\| ddp, 2 ranks x 1 thread: images/s \| 1280 \| [0-9]+ \| [1-9]")
        self.assertRegex(text, r"\| ddp: peak memory \(PSS of all processes\), MiB \| [1-9]")
        self.assertNotIn("exposed", text)  # the stub has none to compare with
        self.assertIn("JAX 1.2; Adam, 3 steps; medians of 2 runs in turn", text)
        self.assertIn("- ddp: Stub 5.0e-01", lines)
        self.assertEqual([len(runs) for runs in samples["ddp"].values()], [3, 3])

    def test_losses_that_differ_end_it_with_an_error(self):
        self.compare(0.0, bound=1e-4)
        with self.assertRaisesRegex(SystemExit, "ddp: losses of Stub differ by 1.0e-03; the bound is 1e-04"):
            self.compare(0.001, bound=1e-4)

    def test_a_program_that_fails_ends_it_with_its_words(self):
        with self.assertRaisesRegex(SystemExit, "(?s)exit code 1 of: .*stub.py.*NameError: name 'broken'"):
            self.compare("broken")


class Launch(unittest.TestCase):
    """launch.py, with real processes."""

    def launch(self, script):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(script)
            program.flush()
            return subprocess.run([sys.executable, PROGRAMS / "launch.py", "--nproc=2", program.name, "--flag"],
                                  capture_output=True, text=True, check=False)

    def test_every_rank_knows_its_place(self):
        done = self.launch("import json, os, sys\n"
                           "task = json.loads(os.environ['TF_CONFIG'])\n"
                           "sys.stdout.write(f\"{os.environ['RANK']} {task['task']['index']} \"\n"
                           "  f\"{os.environ['WORLD_SIZE']} {len(set(task['cluster']['worker']))} \"\n"
                           "  f\"{task['cluster']['worker'][0] == os.environ['COORDINATOR']} {sys.argv[1]}\\n\")\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 0 2 2 True --flag", "1 1 2 2 True --flag"])

    def test_a_rank_that_fails_ends_the_others(self):
        begin = time.monotonic()
        done = self.launch("import os, sys, time\n"
                           "if os.environ['RANK'] == '1': sys.exit('broken')\n"
                           "print(os.getpid(), flush=True); time.sleep(600)\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken", done.stderr)
        self.assertLess(time.monotonic() - begin, 300)
        for pid in done.stdout.split():
            self.assertFalse(os.path.exists(f"/proc/{pid}"))


class FindPython(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pytorch = self.environment("pytorch", "torch==2.11.0")
        self.jax = self.environment("jax", "jax==0.10.2")

    def environment(self, name, line):
        (self.folder / f"{name}.txt").write_text(f"# pinned\n{line}\n")
        return dataclasses.replace(environments.ENVIRONMENTS[name], requirements_folder=self.folder)

    def python_that(self, does):
        path = self.folder / "some_python"
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return str(path)

    def find(self, environment, **variables):
        with mock.patch.dict(os.environ, variables):
            return environments.find(environment)

    def test_the_pinned_versions_are_wanted(self):
        self.assertRegex(environments.ENVIRONMENTS["pytorch"].version(), r"^2\.11\.")
        for environment in environments.ENVIRONMENTS.values():
            self.assertRegex(environment.version(), r"^[0-9]+\.[0-9]+")

    def test_the_named_one_is_taken(self):
        python = self.python_that("echo 2.11.1+cpu")
        self.assertEqual(self.find(self.pytorch, RANKWISE_PYTHON=python), python)

    def test_a_named_one_that_cannot_be_used_is_refused(self):
        with self.assertRaisesRegex(environments.NoPython, "has PyTorch 2.9.0; PyTorch 2.11.0 is"):
            self.find(self.pytorch, RANKWISE_PYTHON=self.python_that("echo 2.9.0"))
        with self.assertRaisesRegex(environments.NoPython, "No module named 'torch'"):
            self.find(self.pytorch,
                      RANKWISE_PYTHON=self.python_that("echo No module named \\'torch\\' >&2; exit 1"))
        with self.assertRaisesRegex(environments.NoPython, "RANKWISE_PYTHON=/none: .*No such"):
            self.find(self.pytorch, RANKWISE_PYTHON="/none")

    def test_one_in_the_cache_is_used_again(self):
        for environment in (self.pytorch, self.jax):
            folder = self.folder / "rankwise" / f"{environment.name}-{environment.version()}"
            folder.mkdir(parents=True)
            (folder / "requirements.txt").write_text(environment.requirements.read_text())
            with mock.patch.object(environments, "version_in", return_value=(None, "no torch")):
                self.assertEqual(
                    self.find(environment, RANKWISE_PYTHON="", XDG_CACHE_HOME=str(self.folder)),
                    str(folder / "bin" / "python"))

    def test_one_with_other_packages_is_made_anew(self):
        folder = self.folder / "rankwise" / "jax-0.10.2"
        folder.mkdir(parents=True)
        (folder / "requirements.txt").write_text("jax==0.10.2\nnumpy==1.0\n")
        made = []
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder)):
            environments.find(self.jax, make=lambda folder, _: made.append(folder))
        self.assertEqual(made, [folder])

    def test_one_that_cannot_be_made_leaves_nothing(self):
        failing = self.python_that("echo no room left >&2; exit 1")
        for environment, advice in ((self.pytorch, "RANKWISE_PYTHON"), (self.jax, "--frameworks")):
            with mock.patch.object(environments.sys, "executable", failing):
                with self.assertRaisesRegex(environments.NoPython, f"no room left.*{advice}"):
                    self.find(environment, RANKWISE_PYTHON="", XDG_CACHE_HOME=str(self.folder))
            name = f"{environment.name}-{environment.version()}"
            self.assertFalse((self.folder / "rankwise" / name).exists())


if __name__ == "__main__":
    unittest.main()
