"""Compares runs of several programs in a table."""

import dataclasses
import math
import re
import statistics

WARM_UP_STEPS = 10
COMPARED_LOSSES = 20


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    work: object  # works.Work
    results: dict  # program -> list of runs.Result, the last one with sampled memory; our program first
    lines: dict = dataclasses.field(default_factory=dict)  # program -> lines of its code
    reasons: dict = dataclasses.field(default_factory=dict)  # unsupported program -> reason

    def title(self):
        ranks = max(self.work.world_size, 1)
        return (f"{self.name}, {ranks} {'rank' if ranks == 1 else 'ranks'} x "
                f"{self.work.threads} {'thread' if self.work.threads == 1 else 'threads'}")


def steady(values):
    return values[WARM_UP_STEPS:] or values


def units_per_second(case, result):
    return case.work.units_per_step() / statistics.median(steady(result.step_seconds))


def units_per_second_of_mean(case, result):
    return case.work.units_per_step() / statistics.fmean(steady(result.step_seconds))


def whole_epoch(case, result):
    """Returns the duration of a run of an epoch; None for a run of a fixed number of steps."""
    return None if case.work.max_steps else result.whole_seconds


def units_per_second_of_epoch(case, result):
    """Training examples over the duration of the process, including start-up, evaluation and exit."""
    if case.work.max_steps:
        return None
    return len(result.step_seconds) * case.work.units_per_step() / result.whole_seconds


def first_step(_, result):
    return result.first_step_seconds


def exposed_of(case, result):
    """None for pipelines, which wait in their bubbles."""
    return steady(result.exposed_seconds) if case.work.stages == 1 else []


def exposed_ms(case, result):
    exposed = exposed_of(case, result)
    return 1000 * statistics.median(exposed) if exposed else None


def exposed_percent(case, result):
    exposed = exposed_of(case, result)
    if not exposed:
        return None
    return 100 * statistics.fmean(exposed) / statistics.fmean(steady(result.step_seconds))


# Name and value of each row; None if the program cannot measure it.
TIMED_ROWS = (
    ("{unit}/s", units_per_second),
    ("{unit}/s of the mean step", units_per_second_of_mean),
    ("{unit}/s of an epoch, launch to end", units_per_second_of_epoch),
    ("an epoch with its evaluation, launch to end, s", whole_epoch),
    ("launch to first step, s", first_step),
    ("comm wait, ms a step", exposed_ms),
    ("comm wait, % of the time", exposed_percent),
)


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_text(ours, theirs):
    """Returns the ratio of the medians, and the lowest and highest of neighbouring runs."""
    def divide(a, b):
        return a / b if b else float("nan")

    text = f"{divide(statistics.median(ours), statistics.median(theirs)):.2f}"
    pairs = [divide(a, b) for a, b in zip(ours, theirs, strict=True)]
    return text if len(pairs) == 1 else f"{text} ({min(pairs):.2f} to {max(pairs):.2f})"


def row(label, columns):
    """`columns`: each program's values, ours first; None for a program without values."""
    ours, *others = columns
    cells = [label, number(statistics.median(ours))]
    for theirs in others:
        cells += ([number(statistics.median(theirs)), ratio_text(ours, theirs)] if theirs else ["-", "-"])
    return "| " + " | ".join(cells) + " |"


def programs_of(cases):
    """Returns the programs with a result in one of the cases, in order."""
    return list(dict.fromkeys(name for case in cases for name in case.results))


def values_of(case, name, value):
    found = [value(case, run) for run in case.results.get(name, [])[:-1]]
    return None if None in found or not found else found


def timed_rows(cases, programs):
    for what, value in TIMED_ROWS:
        for case in cases:
            columns = [values_of(case, name, value) for name in programs]
            # If our ranks do not communicate, there is nothing to compare.
            if any(columns[1:]):
                label = case.title() if value is units_per_second else case.name
                yield row(f"{label}: {what.format(unit=case.work.unit)}", columns)


def memory_rows(cases, programs):
    for case in cases:
        yield row(f"{case.name}: peak memory (PSS of all processes), MiB",
                  [[case.results[name][-1].peak_pss_mib] if name in case.results else None
                   for name in programs])


def line_rows(cases, programs):
    for case in cases:
        if case.lines:
            yield row(f"{case.name}: lines of code",
                      [[case.lines[name]] if name in case.lines else None for name in programs])


def table(cases):
    programs = programs_of(cases)
    head = ["", programs[0]]
    for name in programs[1:]:
        head += [name, "ratio"]
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|",
                      *timed_rows(cases, programs), *memory_rows(cases, programs),
                      *line_rows(cases, programs)])


def reasons(cases):
    """Returns a line with the reason for each program that does not support some of the cases."""
    names_by_reason = {}
    for case in cases:
        for program, why in case.reasons.items():
            names_by_reason.setdefault((program, why), []).append(case.name)
    return [f"{program} has no {', '.join(names)}: {why}."
            for (program, why), names in names_by_reason.items()]


def lines_of_code(source):
    """Counts lines without blank lines, comments and a Python program's docstrings."""
    text = source.read_text()
    if source.suffix == ".py":
        text = re.sub(r'^ *""".*?"""$', "", text, flags=re.DOTALL | re.MULTILINE)
    comment = "#" if source.suffix == ".py" else "//"
    lines = [line.strip() for line in text.splitlines()]
    return sum(1 for line in lines if line and not line.startswith(comment))


def loss_differences(case):
    """Returns, by program, the largest difference to our losses in the first steps; NaN if a loss is."""
    ours, *others = case.results
    first = case.results[ours][0].losses[:COMPARED_LOSSES]
    found = {}
    for name in others:
        theirs = case.results[name][0].losses[:COMPARED_LOSSES]
        differences = [abs(a - b) for a, b in zip(first, theirs, strict=True)]
        found[name] = max(differences, key=lambda difference: (math.isnan(difference), difference))
    return found


def too_different(cases):
    """Returns a line for each program and case whose losses differ by more than the case's bound."""
    return [f"{case.name}: losses of {name} differ by {difference:.1e}; the bound is "
            f"{case.work.loss_bound:.0e}" for case in cases if case.work.loss_bound
            for name, difference in loss_differences(case).items()
            if not difference <= case.work.loss_bound]
