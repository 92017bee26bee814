"""What benchmarks share: turns, tables, the machine, the statistics of `rankslice bench`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, floor
from random import Random
from statistics import median
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rankslice.backend.runtime.system.cores import governor_of
from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.measurement.bench import intervals
from rankslice.measurement.bench.bench_records import BoardFacts
from rankslice.measurement.bench.quiet import (
    disturbances,
    machine_facts,
    noise_between,
    read_counters,
)

__all__ = [
    "Interval",
    "console",
    "in_turns",
    "machine",
    "print_table",
    "ratios",
    "spread",
    "start_round",
]

Name = TypeVar("Name")
Measured = TypeVar("Measured")

console = Console(highlight=False, width=max(120, Console().width))


class Interval(intervals.Interval):
    """A value, and where it is with a confidence of 95 per cent."""

    def text(self, digits: int = 2) -> str:
        """Return ``12.34 (11.90-13.02)``."""
        value, low, high = (f"{bound:.{digits}f}" for bound in (self.value, self.low, self.high))
        return f"{value} ({low}-{high})"


def spread(values: Iterable[float]) -> Interval:
    """Return the median of independent values, and its interval by the binomial distribution.

    The bounds are two of the values, in order; of fewer than eight they are the least and the
    greatest. Those of five hold the median in 94 of 100 cases, of four in 88, of three in 75.
    """
    ordered = sorted(values)
    half = 0.98 * len(ordered) ** 0.5
    low, high = floor(len(ordered) / 2 - half), ceil(len(ordered) / 2 + half)
    return Interval(median(ordered), ordered[max(0, low)], ordered[min(len(ordered) - 1, high)])


def ratios(measured: Sequence[float], reference: Sequence[float]) -> Interval:
    """Return the median of the ratios of values that were measured in pairs.

    It assumes no distribution, and single wild ratios change it little.
    """
    return spread(a / b for a, b in zip(measured, reference, strict=True))


def machine() -> str:
    """Return one line about this machine: processor, cores that may be used, Python."""
    facts = machine_facts((), 0.0, BoardMode())
    load, python = f"load {facts.load_after:.1f}", f"Python {platform.python_version()}"
    return f"{facts.cores} cores of an {facts.processor}, {load}, {python}"


def in_turns(
    rounds: int, jobs: Mapping[Name, Callable[[], Measured]]
) -> dict[Name, list[Measured]]:
    """Measure each job once a round, in random order, and say whether the machine was quiet.

    Args:
        rounds: how many there are.
        jobs: what measures once, by name. The processor time of its processes is no disturbance,
            that of virtual boards is, as they are not children of this one.

    Returns:
        What was measured, by name and round.
    """
    order, load_before, noises = Random(0), os.getloadavg()[0], []
    results: dict[Name, list[Measured]] = {name: [] for name in jobs}
    for number in range(rounds):
        start_round(number + 1, rounds)
        for name in order.sample([*jobs], len(jobs)):
            before = read_counters()
            results[name].append(jobs[name]())
            noises.append(noise_between(before, read_counters()))
    facts = BoardFacts("", len(os.sched_getaffinity(0)), governor_of(0), load_before)
    for line in disturbances(facts, noises):
        console.print(f"the machine was not quiet: {line}", style="dim")
    return results


def start_round(number: int, rounds: int) -> None:
    """Say which round begins, from 1; of many rounds some."""
    if (number - 1) % max(1, rounds // 10) == 0:
        console.print(f"round {number} of {rounds}", style="dim")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: the first column is text, the others are numbers."""
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(table)
