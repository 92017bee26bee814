"""A traced job, printed."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from rankslice.backend.runtime.summary.texts import latency_text, rate_text
from rankslice.commands.output import new_table, print_line, shortened
from rankslice.commands.trace.trace import Traced
from rankslice.framework.wording import on_one_line
from rankslice.views.trace_tables import RANK_CAPTION, RANK_HEAD, RANK_RIGHT, rank_rows


def print_traced(traced: Traced, console: Console) -> None:
    """Print what each rank did with its time, and what limits the rate."""
    table = new_table(RANK_HEAD, RANK_RIGHT, RANK_CAPTION)
    for cells in rank_rows(traced.found):
        table.add_row(*(escape(shortened(cell)) for cell in cells))
    console.print(table)
    summary = traced.summary
    if summary is not None:
        rate, of = summary.throughput_fps, summary.throughput_of
        console.print(rate_text(summary.completed, rate, of, summary.window, None))
        console.print(latency_text(summary.latency_ms))
    for line in traced.words:
        print_line(console, on_one_line(line))
    for line in traced.notes:
        print_line(console, on_one_line(line), "note")
