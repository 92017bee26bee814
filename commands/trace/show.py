"""A traced job, printed."""

from __future__ import annotations

from rich.console import Console

from rankslice.backend.runtime.summary.rates import latency_text
from rankslice.commands.trace.trace import Traced
from rankslice.views.content import Notice
from rankslice.views.run_parts import rate_of
from rankslice.views.terminal import show
from rankslice.views.trace_page import ranks_section


def print_traced(traced: Traced, console: Console) -> None:
    show(console, ranks_section(traced.found))
    if (summary := traced.summary) is not None:
        show(console, rate_of(summary), latency_text(summary.latency_ms))
    bottleneck, *waits = traced.words
    sentences = (f"bottleneck: {bottleneck}", *waits)
    show(console, Notice("Bottleneck", sentences), Notice("Notes", traced.notes, "note"))
