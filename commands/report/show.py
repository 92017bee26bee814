"""Reports, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from rankslice.commands.output import new_table, print_line, shortened
from rankslice.framework.wording import on_one_line
from rankslice.views.report_page import figure_head
from rankslice.views.side_by_side import figures

if TYPE_CHECKING:
    from rich.console import Console

    from rankslice.commands.report.report import Report


def print_report(report: Report, console: Console) -> None:
    """Print the figures of all runs, and the ratios to the first."""
    head = [escape(shortened(name)) for name in figure_head(report.runs)]
    table = new_table(head, right=range(1, len(head)))
    for figure in figures(report.runs):
        table.add_row(*figure.cells)
    console.print(table)


def print_differences(report: Report, console: Console) -> None:
    """Print in what the runs differ besides the mapping."""
    for sentence in report.differences:
        print_line(console, on_one_line(sentence), "warning")
