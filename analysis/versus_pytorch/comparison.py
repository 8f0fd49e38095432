"""What the runs of several programs say about each other, as a table."""

import dataclasses
import math
import statistics

WARM_UP_STEPS = 10
COMPARED_LOSSES = 20


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    work: object  # runs.Work
    results: dict  # program -> list of runs.Result, the last one with sampled memory

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


def first_step(_, result):
    return result.first_step_seconds


def exposed_ms(_, result):
    return 1000 * statistics.median(steady(result.exposed_seconds))


def exposed_percent(_, result):
    exposed = steady(result.exposed_seconds)
    return 100 * statistics.fmean(exposed) / statistics.fmean(steady(result.step_seconds))


# What each row shows, how a result gives it, and whether every case has it or only those with
# exposed communication.
TIMED_ROWS = (
    ("{unit}/s", units_per_second, False),
    ("{unit}/s of the mean step", units_per_second_of_mean, False),
    ("launch to first step, s", first_step, False),
    ("exposed communication, ms a step", exposed_ms, True),
    ("exposed communication, % of the time", exposed_percent, True),
)


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_text(ours, theirs):
    """Of the medians, and the lowest and highest of two runs in turn."""
    def divide(a, b):
        return a / b if b else float("nan")

    text = f"{divide(statistics.median(ours), statistics.median(theirs)):.2f}"
    pairs = [divide(a, b) for a, b in zip(ours, theirs, strict=True)]
    return text if len(pairs) == 1 else f"{text} ({min(pairs):.2f} to {max(pairs):.2f})"


def row(label, samples):
    """`samples`: program -> values, our program first."""
    ours, *others = samples.values()
    cells = [label, number(statistics.median(ours))]
    for theirs in others:
        cells += [number(statistics.median(theirs)), ratio_text(ours, theirs)]
    return "| " + " | ".join(cells) + " |"


def memory_row(case):
    return row(f"{case.name}: peak memory (PSS of all processes), MiB",
               {name: [runs[-1].peak_pss_mib] for name, runs in case.results.items()})


def table(cases):
    names = list(cases[0].results)
    head = ["", names[0]]
    for name in names[1:]:
        head += [name, "ratio"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for what, value, only_exposed in TIMED_ROWS:
        for case in cases:
            if only_exposed and not case.work.has_exposed_seconds():
                continue
            label = case.title() if value is units_per_second else case.name
            lines.append(row(f"{label}: {what.format(unit=case.work.unit)}", {
                name: [value(case, run) for run in runs[:-1]]
                for name, runs in case.results.items()}))
    return "\n".join(lines + [memory_row(case) for case in cases])


def loss_difference(case):
    """The largest of the first steps, between the first two programs; NaN if one is."""
    ours, theirs = (runs[0].losses[:COMPARED_LOSSES] for runs in list(case.results.values())[:2])
    differences = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    return max(differences, key=lambda difference: (math.isnan(difference), difference))


def too_different(cases):
    """A line for each case whose losses differ by more than its bound."""
    return [f"{case.name}: losses differ by {loss_difference(case):.1e}; the bound is "
            f"{case.work.loss_bound:.0e}" for case in cases
            if case.work.loss_bound and not loss_difference(case) <= case.work.loss_bound]
