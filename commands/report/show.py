"""Reports, printed."""

from __future__ import annotations

from rich.console import Console

from rankslice.commands.report.report import Report
from rankslice.views.content import Notice
from rankslice.views.side_by_side import benches_table, figure_table
from rankslice.views.terminal import show


def print_report(report: Report, console: Console) -> None:
    if report.runs:
        show(console, figure_table(report.runs))
    if any(kept.ratios for kept in report.benches):
        notes = [f"{kept.name}: {note}" for kept in report.benches for note in kept.notes]
        show(console, benches_table(report.benches), Notice("Notes", tuple(notes), "note"))


def print_differences(report: Report, console: Console) -> None:
    """Print in what the runs differ besides the mapping."""
    show(console, Notice("Not comparable", tuple(report.differences), "warning"))
