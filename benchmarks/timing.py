"""What the benchmarks share: medians, ratios with their interval, tables, the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

console = Console(highlight=False, width=max(120, Console().width))


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of repeated measurements, with the least and the greatest."""

    middle: float
    least: float
    greatest: float

    def text(self, digits: int = 2) -> str:
        """Return ``12.34 (11.90-13.02)``."""
        middle, least, greatest = (
            f"{value:.{digits}f}" for value in (self.middle, self.least, self.greatest)
        )
        return f"{middle} ({least}-{greatest})"


def spread(values: Iterable[float]) -> Spread:
    """Return the median and the range of some measurements; there must be one."""
    found = list(values)
    return Spread(median(found), min(found), max(found))


def confident(values: Iterable[float]) -> Spread:
    """Return the median of many measurements, and where it is with a confidence of 95 per cent.

    The bounds are those of the binomial distribution: two of the measurements, in order.
    """
    found = sorted(values)
    half = 0.98 * len(found) ** 0.5
    low, high = floor(len(found) / 2 - half), ceil(len(found) / 2 + half)
    return Spread(median(found), found[max(0, low)], found[min(len(found) - 1, high)])


def ratios(measured: Sequence[float], reference: Sequence[float]) -> Spread:
    """Return the spread of the ratios of measurements that were taken in pairs.

    On a machine that others use too, only what was measured side by side can be compared: the
    ratio of each pair counts, not the ratio of two medians.
    """
    return spread(a / b for a, b in zip(measured, reference, strict=True))


def confident_ratios(measured: Sequence[float], reference: Sequence[float]) -> Spread:
    """Return the median of many such ratios, and where it is with a confidence of 95 per cent."""
    return confident(a / b for a, b in zip(measured, reference, strict=True))


def machine() -> str:
    """Return one line about this machine: processor, cores that may be used, Python."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of an {model}, load {os.getloadavg()[0]:.1f}, Python " + (
        platform.python_version()
    )


def start_round(number: int, rounds: int, patience_s: float) -> None:
    """Say which round begins, once the machine has little else to do.

    Args:
        number: of the round, from 1.
        rounds: how many there are.
        patience_s: how long to wait for two quiet seconds; then the round begins anyhow.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and _busy_share(2.0) > 0.1:
        pass
    console.print(f"round {number} of {rounds}", style="dim")


def _busy_share(seconds: float) -> float:
    """Return the share of all cores' time that anybody used in the next seconds."""
    before = _busy_and_total()
    time.sleep(seconds)
    busy, total = (b - a for a, b in zip(before, _busy_and_total(), strict=True))
    return busy / total


def _busy_and_total() -> tuple[int, int]:
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, idle, wait, *interrupts = map(int, line.split()[1:9])
    busy = user + nice + system + sum(interrupts)
    return busy, busy + idle + wait


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: the first column is text, the others are numbers."""
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(table)
