"""Tests of data_parallel.py that need neither trainers nor PyTorch."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import data_parallel


class Flags(unittest.TestCase):
    def parse(self, *flags):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            for name in data_parallel.TRAINERS:
                pathlib.Path(folder, name).touch()
            stack.enter_context(mock.patch.object(sys, "argv", ["data_parallel", f"--bin={folder}", *flags]))
            said = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            try:
                return data_parallel.parse_args()
            except SystemExit:
                return said.getvalue().splitlines()[-1]

    def test_lists(self):
        args = self.parse("--replicas=1,2", "--backends=gloo,mpi")
        self.assertEqual((args.replicas, args.backends), ([1, 2], ["gloo", "mpi"]))
        self.assertEqual(self.parse().replicas, [1, 2, 4])

    def test_bad_ones_are_refused(self):
        for flag, message in (("--replicas=3", "expected a multiple of every count in --replicas"),
                              ("--replicas=0", "--replicas: expected 1 or more"),
                              ("--backends=tcp", "'tcp' is none of gloo, shm, mpi"),
                              ("--steps=10", "expected more than 10"),
                              ("--bin=none", "no single in none")):
            with self.subTest(flag):
                self.assertIn(message, self.parse(flag))


class Report(unittest.TestCase):
    def test_a_records_phases_without_the_first_devices_parts(self):
        step = {"step_seconds": 10.0, "forward_seconds": 4.0, "backward_seconds": 5.0, "optimizer_seconds": 1.0,
                "first_device_seconds": {"replicate": 1.5, "gather": 0.5, "reduce": 2.0}}
        self.assertEqual(data_parallel.parts_of_record(step), {
            "step": 10.0, "forward": 2.0, "backward": 3.0, "optimizer": 1.0,
            "replicate": 1.5, "gather": 0.5, "reduce": 2.0})

    def test_medians_leave_the_warm_up_out(self):
        steps = [{"step": 9.0}] * data_parallel.WARM_UP + [{"step": 1.0}, {"step": 2.0, "reduce": 0.5}, {"step": 3.0}]
        found = data_parallel.medians(steps)
        self.assertEqual((found["step"], found["reduce"]), (2.0, 0.0))

    def test_speed_ups_are_over_the_first_column(self):
        parts = dict.fromkeys(data_parallel.PARTS, 0.25)
        results = {("`single`", 1): parts | {"step": 4.0}, ("`data_parallel`", 1): parts | {"step": 4.0},
                   ("`data_parallel`", 2): parts | {"step": 2.5}}
        args = mock.Mock(replicas=[1, 2], batch_size=64)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            data_parallel.report(args, "mlp", results)
        lines = printed.getvalue().splitlines()
        self.assertIn("| `single` | 4.0 |  |", lines)
        self.assertIn("| `data_parallel` | 4.0 | 2.5 (1.60) |", lines)
        self.assertIn("| `data_parallel` | 2.50 |" + " 0.25 |" * len(data_parallel.PARTS), lines)


if __name__ == "__main__":
    unittest.main()
