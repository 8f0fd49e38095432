#!/usr/bin/env python3
"""Prints the skipped tests, which Bazel reports as passed, and fails if a reason for skipping is not allowed.

    skips.py LOG [--testlogs=bazel-testlogs] [--allowed=.ci/allowed_skips.txt]

LOG is the output of `bazel test`; reads the test.xml of each target that it reports as passed, cached or not. Exit codes: 0; 1 if a reason
is not allowed; 2 if the log or a test.xml cannot be read.
"""

import argparse
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

PASSED = re.compile(r"^(//\S+)\s+(?:\(cached\) )?PASSED\b", re.MULTILINE)
NOT_BUILT = re.compile(r"^(//\S+)\s+SKIPPED\b", re.MULTILINE)
# The last line of unittest's output, which Bazel copies into the test.xml of a script.
UNITTEST = re.compile(r"^OK \(skipped=(\d+)\)$", re.MULTILINE)


def allowed_reasons(path):
    """The regular expressions in `path`, a file of lines "EXPRESSION => WHY" and comments."""
    lines = (line.strip() for line in pathlib.Path(path).read_text().splitlines())
    expressions = []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        expression, arrow, why = line.partition(" => ")
        if not arrow or not why:
            raise ValueError(f"{path}: expected EXPRESSION => WHY, not {line!r}")
        expressions.append(re.compile(expression))
    return expressions


def skips_in(path):
    """The number of test cases in the test.xml at `path`, and a list of (case, reason) for the skipped ones."""
    root = xml.etree.ElementTree.parse(path).getroot()
    cases, skipped = 0, []
    for case in root.iter("testcase"):
        cases += 1
        found = case.find("skipped")
        if found is None:
            continue
        message = found.get("message") or found.text or ""
        # GoogleTest begins with file and line.
        reason = message.partition("\n")[2] if re.match(r"\S+:\d+\n", message) else message
        skipped.append((f"{case.get('classname')}.{case.get('name')}", " ".join(reason.split())))
    for output in root.iter("system-out"):
        for count in UNITTEST.findall(output.text or ""):
            skipped += [("a unittest", "unittest, without a reason")] * int(count)
    return cases, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--testlogs", default="bazel-testlogs")
    parser.add_argument("--allowed", default=".ci/allowed_skips.txt")
    args = parser.parse_args()
    skips = collections.defaultdict(list)  # by target and reason
    idle = 0
    try:
        allowed = allowed_reasons(args.allowed)
        log = pathlib.Path(args.log).read_text(errors="replace")
        targets = sorted(set(PASSED.findall(log)))
        for target in targets:
            folder = pathlib.Path(args.testlogs, *target[2:].split(":"))
            files = sorted(folder.rglob("test.xml"))
            if not files:
                raise OSError(f"{target} passed, and {folder} has no test.xml")
            cases = skipped = 0
            for file in files:
                in_file, found = skips_in(file)
                cases += in_file
                skipped += len(found)
                for case, reason in found:
                    skips[target, reason].append(case)
            idle += 0 < cases <= skipped
    except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
        print(f"skips.py: {error}", file=sys.stderr)
        return 2
    refused = 0
    for (target, reason), cases in skips.items():
        is_allowed = any(expression.search(reason) for expression in allowed)
        refused += 0 if is_allowed else len(cases)
        shown = cases[0] if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more"
        print(f"{'skipped' if is_allowed else 'SKIPPED, NOT ALLOWED'}: {target} {shown}: {reason[:200]}")
    print(f"{sum(map(len, skips.values()))} test cases of {len({target for target, _ in skips})} targets were skipped, "
          f"{refused} for a reason that {args.allowed} does not allow; {idle} targets ran no case at all; "
          f"{len(set(NOT_BUILT.findall(log)))} targets are not built in this configuration")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
