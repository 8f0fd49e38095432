"""Of the comparison, what needs no PyTorch."""

import json
import os
import pathlib
import stat
import tempfile
import unittest
from unittest import mock

import comparison
import pytorch_python
import runs


def result(step_seconds=0.1, exposed_seconds=(), losses=(2.0, 1.0), pss=100.0):
    warm_up = [9.0] * comparison.WARM_UP_STEPS
    return runs.Result(losses=list(losses), step_seconds=warm_up + [step_seconds] * 5,
                       exposed_seconds=(warm_up + list(exposed_seconds)) if exposed_seconds else [],
                       first_step_seconds=0.5, reported_first_step_seconds=0.5,
                       peak_pss_mib=pss, params_file="")


def case(name, world_size, ours, theirs):
    work = runs.Work(data_dir="", world_size=world_size, batch_size=64, threads=2, max_steps=15)
    return comparison.Case(name, work, {"rankwise": ours, "PyTorch": theirs})


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
        self.assertIn("| ddp: exposed communication, ms a step | 10 | 20 | 0.50 |", text)
        self.assertIn("| ddp: exposed communication, % of the time | 20 | 10 | 2.00 |", text)

    def test_loss_difference_is_the_largest(self):
        self.assertAlmostEqual(comparison.loss_difference(
            case("fp32", 0, [result(losses=(2, 1))], [result(losses=(2.5, 1.25))])), 0.5)


def gpt_case(ours=(2.0, 1.0), theirs=(2.0, 1.0), **work):
    work = runs.GptWork(data_dir="text", **({"world_size": 2, "batch_size": 8, "max_steps": 15} | work))
    return comparison.Case("tp", work, {"rankwise": [result(0.1, losses=ours), result()],
                                        "PyTorch": [result(0.4, losses=theirs), result()]})


class Gpt(unittest.TestCase):
    def test_counts_tokens_and_no_exposed_communication(self):
        text = comparison.table([gpt_case()])
        # 8 sequences of 128 tokens in 0.1 and 0.4 s.
        self.assertIn("| tp, 2 ranks x 1 thread: tokens/s | 10240 | 2560 | 4.00 |", text)
        self.assertNotIn("exposed", text)

    def test_losses_that_differ_by_more_than_rounding_are_told(self):
        same, different = gpt_case(theirs=(2.0, 1.00009)), gpt_case(theirs=(2.0, 1.00011))
        undefined = gpt_case(theirs=(2.0, float("nan")))
        self.assertEqual(comparison.too_different([same]), [])
        self.assertEqual(comparison.too_different([same, different]),
                         ["tp: losses differ by 1.1e-04; the bound is 1e-04"])
        self.assertEqual(len(comparison.too_different([undefined])), 1)

    def test_two_programs_take_the_same_flags(self):
        work = gpt_case(world_size=4, stages=2, micro_batches=8, sequence_parallel=True).work
        ours = work.rankwise_command({"hybrid": "bin/hybrid"})
        theirs = work.pytorch_command("python3", tuned=False)
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
        self.assertIn("--fsdp", sharded.work.pytorch_command("python3", tuned=False))
        self.assertNotIn("--fsdp", gpt_case().work.pytorch_command("python3", tuned=False))

    def test_ddp_does_the_same_work(self):
        trainers = {"fsdp": "bin/fsdp", "ddp": "bin/ddp"}
        work = gpt_case(data_parallel="fsdp").work
        with mock.patch.object(runs.Rankwise, "run", lambda self, work, folder: work):
            unsharded = runs.RankwiseDdp(trainers).run(work, "folder")
        ours, ddp = work.rankwise_command(trainers), unsharded.rankwise_command(trainers)
        self.assertEqual((ours[0], ddp[0]), ("bin/fsdp", "bin/ddp"))
        self.assertEqual([flag for flag in ours if flag not in ddp], ["bin/fsdp", "--zero=3"])
        self.assertEqual(ours[1:-1], ddp[1:])


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


class FindPython(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.requirements = self.folder / "requirements.txt"
        self.requirements.write_text("# pinned\ntorch==2.11.0\n")

    def python_that(self, does):
        path = self.folder / "some_python"
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return str(path)

    def find(self, **environment):
        with mock.patch.dict(os.environ, environment):
            return pytorch_python.find(self.requirements)

    def test_the_pinned_version_is_wanted(self):
        self.assertRegex(pytorch_python.wanted_version(), r"^2\.11\.")

    def test_the_named_one_is_taken(self):
        python = self.python_that("echo 2.11.1+cpu")
        self.assertEqual(self.find(RANKWISE_PYTHON=python), python)

    def test_a_named_one_that_will_not_do_is_refused(self):
        with self.assertRaisesRegex(pytorch_python.NoPython, "has torch 2.9.0; torch 2.11.0 is"):
            self.find(RANKWISE_PYTHON=self.python_that("echo 2.9.0"))
        with self.assertRaisesRegex(pytorch_python.NoPython, "No module named 'torch'"):
            self.find(RANKWISE_PYTHON=self.python_that("echo No module named \\'torch\\' >&2; exit 1"))
        with self.assertRaisesRegex(pytorch_python.NoPython, "RANKWISE_PYTHON=/none: .*No such"):
            self.find(RANKWISE_PYTHON="/none")

    def test_one_in_the_cache_is_used_again(self):
        folder = self.folder / "rankwise" / "pytorch-2.11.0"
        folder.mkdir(parents=True)
        (folder / "requirements.txt").write_text(self.requirements.read_text())
        with mock.patch.object(pytorch_python, "torch_of", return_value=(None, "no torch")):
            self.assertEqual(self.find(RANKWISE_PYTHON="", XDG_CACHE_HOME=str(self.folder)),
                             str(folder / "bin" / "python"))

    def test_one_that_cannot_be_made_leaves_nothing(self):
        failing = self.python_that("echo no room left >&2; exit 1")
        with mock.patch.object(pytorch_python.sys, "executable", failing):
            with self.assertRaisesRegex(pytorch_python.NoPython, "no room left.*RANKWISE_PYTHON"):
                self.find(RANKWISE_PYTHON="", XDG_CACHE_HOME=str(self.folder))
        self.assertFalse((self.folder / "rankwise" / "pytorch-2.11.0").exists())


if __name__ == "__main__":
    unittest.main()
