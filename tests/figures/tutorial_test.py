#!/usr/bin/env -S python3 -B
"""Tests docs/tutorial.md: one shell runs every command, and the output on the page must equal the printed output, in
the same order, except for times. The code on the page must be in the files that it names."""

import collections
import json
import os
import re
import subprocess
import tempfile
import unittest

PAGE = "docs/tutorial.md"
STEPS = range(1, 10)
LEFT_OUT = "..."  # a line, or the end of one

# Runs "./bazelw run //PACKAGE:NAME -- FLAGS" with the binaries built for this test. The time limit also ends a command
# whose shell was killed.
BAZELW = """#!/bin/bash
target=${2#//}
[ "$target" = :study ] && target=analysis/study:study
exec timeout 100 "$BINARIES/${target/://}" "${@:4}"
"""

Fence = collections.namedtuple("Fence", "step line kind lines")  # step: N of "## N. " above it, or 0
# Consecutive lines in `file`; for a difference, they must not be in `absent_from`.
Excerpt = collections.namedtuple("Excerpt", "step line lines file absent_from")


class Command:
    """`text`, its output on the page, and its printed output, without blank lines."""

    def __init__(self, step, line, text):
        self.step, self.line, self.text = step, line, text
        self.shown, self.printed = [], []
        self.record = (re.search(r"--record=(\S+)", text) or [None, None])[1]
        self.is_ledger = text.startswith("ledger ")

    def has_times(self):
        return self.record is not None or self.is_ledger


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def fences_in(page):
    fences, step, is_open = [], 0, False
    for number, line in enumerate(page, 1):
        if line.startswith("```"):
            is_open = not is_open
            if is_open:
                fences.append(Fence(step, number + 1, line[3:], []))
        elif is_open:
            fences[-1].lines.append(line)
        elif heading := re.match(r"## (\d+)\. ", line):
            step = int(heading[1])
    return fences


def commands_in(fences):
    """Parses "$ COMMAND", followed by its output."""
    commands = []
    for fence in fences:
        if fence.kind:
            continue
        assert fence.lines[0].startswith("$ "), f"{PAGE}:{fence.line}: output of no command"
        for number, line in enumerate(fence.lines, fence.line):
            if line.startswith("$ "):
                commands.append(Command(fence.step, number, line[2:]))
            elif line:
                commands[-1].shown.append(line)
    return commands


def excerpts_of_difference(fence):
    """Returns each part of a `diff -u` before and after, without the numbers after @@."""
    old_file, new_file = (line[4:] for line in fence.lines[:2])
    parts, number = [], fence.line + 2
    for line in fence.lines[2:]:
        if line.startswith("@@"):
            parts.append((Excerpt(fence.step, number, [], old_file, new_file),
                          Excerpt(fence.step, number, [], new_file, old_file)))
        if line[0] in " -":
            parts[-1][0].lines.append(line[1:])
        if line[0] in " +":
            parts[-1][1].lines.append(line[1:])
        number += 1
    return [excerpt for part in parts for excerpt in part if excerpt.lines]


def excerpts_in(fences):
    excerpts = []
    for fence in fences:
        if fence.kind == "cpp":  # "// FILE", followed by lines of that file
            excerpts.append(Excerpt(fence.step, fence.line, fence.lines[1:], fence.lines[0][3:], None))
        elif fence.kind == "diff":
            excerpts += excerpts_of_difference(fence)
    return excerpts


def run_all(commands, folder):
    """Runs the commands in one shell, so that definitions last."""
    with open(f"{folder}/bazelw", "w", encoding="utf-8") as file:
        file.write(BAZELW)
    os.chmod(f"{folder}/bazelw", 0o755)
    script = "".join(f"{{ {command.text}; }} >{i}.out 2>{i}.err || echo $? >{i}.failed\n"
                     for i, command in enumerate(commands))
    subprocess.run(["/bin/bash", "-c", script], cwd=folder, env=os.environ | {"BINARIES": os.getcwd()}, timeout=250,
                   check=True)
    for i, command in enumerate(commands):
        command.printed = [line for line in lines_of(f"{folder}/{i}.out") if line.strip()]
        if os.path.exists(f"{folder}/{i}.failed"):
            raise AssertionError("\n".join([f"{PAGE}:{command.line}: {command.text}: failed"] + command.printed +
                                           lines_of(f"{folder}/{i}.err")))


def shape(line):
    """Replaces every number by "#" and several spaces by one: columns are as wide as their numbers."""
    line = re.sub(r"[-+]?\d+([.:]\d+)*(e[-+]\d+)?", "#", line.strip())
    return re.sub(r"--+", "--", re.sub(r" +", " ", line))


def is_shown_as(command, shown, printed):
    if command.has_times():
        shown, printed = shape(shown), shape(printed)
    if shown.endswith(LEFT_OUT):
        return printed.startswith(shown[:-len(LEFT_OUT)])
    return shown == printed


def lasting_numbers(line):
    """Returns numbers independent of the machine's speed: losses, bytes and calls along an axis, and computed memory."""
    if line.startswith("memory of rank"):
        return [float(number) for number in re.findall(r"\(([\d.]+)\)", line)]
    columns = re.split(r"  +", line)
    if len(columns) == 7 and columns[3] in ("tp", "cp", "pp", "dp"):
        return [float(columns[i]) for i in (1, 2, 4, 5)]
    return [float(number) for number in re.findall(r"loss ([\d.]+)", line)]


def recorded_losses(path):
    """Returns the mean over the ranks, by training step."""
    losses = collections.defaultdict(list)
    for line in lines_of(path):
        record = json.loads(line)
        if record["kind"] == "step":
            losses[record["step"]].append(record["loss"])
    return {step: sum(of_ranks) / len(of_ranks) for step, of_ranks in losses.items()}


class TutorialTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.page = lines_of(PAGE)
        fences = fences_in(cls.page)
        cls.commands, cls.excerpts = commands_in(fences), excerpts_in(fences)
        cls.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        run_all(cls.commands, cls.folder)

    def expect_same(self, command, shown, printed):
        self.assertTrue(is_shown_as(command, shown, printed), f"\nshown:   {shown}\nprinted: {printed}")
        for want, have in zip(lasting_numbers(shown), lasting_numbers(printed)):
            # The last digit of a loss depends on the processor.
            self.assertAlmostEqual(have, want, delta=2e-4 * want, msg=f"\nshown:   {shown}\nprinted: {printed}")

    def expect_shown(self, command):
        # Lines of other ranks appear anywhere among those of rank 0.
        others = [line for line in command.printed if line.startswith("[rank ")]
        printed = [line for line in command.printed if line not in others]
        left_out = False
        for shown in command.shown:
            if shown == LEFT_OUT:
                left_out = True
                continue
            lines = others if shown.startswith("[rank ") else printed
            if left_out or lines is others:
                while lines and not is_shown_as(command, shown, lines[0]):
                    lines.pop(0)
            self.assertTrue(lines, f"not printed, or not here: {shown}")
            self.expect_same(command, shown, lines.pop(0))
            left_out = left_out and lines is others
        self.assertTrue(left_out or not printed, f"printed, but not shown: {printed}")

    def test_commands_print_what_the_page_shows(self):
        for command in self.commands:
            with self.subTest(f"{PAGE}:{command.line}: {command.text}"):
                self.expect_shown(command)

    def test_all_steps_have_the_losses_of_the_first(self):
        bound, steps = re.search(r"within (1e-\d+) in every one of the (\d+) ", " ".join(self.page)).groups()
        trainings = [command for command in self.commands if command.record]
        base = recorded_losses(f"{self.folder}/{trainings[0].record}")
        self.assertEqual(len(base), int(steps))
        for command in trainings:
            losses = recorded_losses(f"{self.folder}/{command.record}")
            self.assertEqual(losses.keys(), base.keys(), command.text)
            for step, loss in losses.items():
                self.assertAlmostEqual(loss, base[step], delta=float(bound), msg=f"{command.text}, step {step}")

    def test_the_test_loss_is_the_same(self):
        lines = [[line for line in command.printed if "test loss" in line]
                 for command in self.commands if command.record]
        base = lasting_numbers(lines[0][0])[0]
        for line in lines:
            self.assertEqual(len(line), 1)
            self.assertAlmostEqual(lasting_numbers(line[0])[0], base, delta=1.1e-4)  # four decimals

    def test_the_code_is_that_of_the_trainers(self):
        for excerpt in self.excerpts:
            lines = "\n".join(["", *(line.strip() for line in excerpt.lines), ""])
            for file, expected in (excerpt.file, True), (excerpt.absent_from, False):
                if file is None:
                    continue
                text = "\n".join(["", *(line.strip() for line in lines_of(file)), ""])
                with self.subTest(f"{PAGE}:{excerpt.line}"):
                    self.assertEqual(lines in text, expected, f"{file}:\n{lines}")

    def test_every_step_trains_reads_its_ledger_and_shows_code(self):
        for step in STEPS:
            with self.subTest(step=step):
                of_step = [command for command in self.commands if command.step == step]
                self.assertEqual(sum(command.record is not None for command in of_step), 1)
                self.assertEqual(sum(command.is_ledger for command in of_step), 1)
                self.assertTrue(any(excerpt.step == step for excerpt in self.excerpts))

    def test_no_command_is_in_the_text(self):  # where it would not be run
        for line in self.page:
            self.assertTrue("bazelw" not in line or line.startswith("$ "), line)


if __name__ == "__main__":
    unittest.main()
