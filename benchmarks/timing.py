"""What the benchmarks share: tables, the machine, and the statistics of `rankslice bench`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rankslice.measurement.bench.intervals import Interval
from rankslice.measurement.bench.intervals import median_interval as spread
from rankslice.measurement.bench.intervals import median_ratio as ratios
from rankslice.measurement.bench.quiet import machine_facts, read_counters

__all__ = ["Interval", "console", "machine", "print_table", "ratios", "spread", "start_round"]

console = Console(highlight=False, width=max(120, Console().width))


def machine() -> str:
    """Return one line about this machine: processor, cores that may be used, Python."""
    facts = machine_facts((), 0.0)
    load, python = f"load {facts.load_after:.1f}", f"Python {platform.python_version()}"
    return f"{facts.cores} cores of an {facts.processor}, {load}, {python}"


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
    before = read_counters()
    time.sleep(seconds)
    after = read_counters()
    return (after.busy_s - before.busy_s) / (after.at_s - before.at_s) / (os.cpu_count() or 1)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: the first column is text, the others are numbers."""
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(table)
