"""An exploration, printed for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankslice.commands.output import shortened
from rankslice.exploration.results.answer import (
    failure_texts,
    mappings_text,
    objectives_text,
    rate_text,
    tried_text,
)
from rankslice.exploration.results.records import Candidate, Exploration, Figures
from rankslice.framework.quantities import bytes_text, joules_text

__all__ = ["print_exploration"]

_MAX_KEYS = 6


def print_exploration(exploration: Exploration, folder: str, console: Console) -> None:
    """Print the mappings that were found, then what to take from it.

    Args:
        exploration: what was found.
        folder: where it was written.
        console: where to print.
    """
    table = Table(
        "mapping",
        "frames/s",
        "latency",
        "memory",
        "energy",
        "boards",
        "accelerators",
        caption=f"memory and energy per frame: of the board that needs most{_star(exploration)}",
    )
    for column in table.columns[:6]:
        column.justify = "right"
    for candidate in exploration.candidates:
        for figures in candidate.figures:
            table.add_row(*_row(candidate, figures))
    console.print(table)
    if sources := _energy_sources(exploration.candidates):
        console.print(escape(sources), soft_wrap=True)
    console.print(
        escape(f"{mappings_text(exploration.evaluations)} evaluated by {exploration.method}"),
        soft_wrap=True,
    )
    if exploration.tried_by:
        console.print(tried_text(exploration), soft_wrap=True)
    for sentence in (
        *exploration.left_out,
        *failure_texts(exploration.failures),
        *exploration.answer,
    ):
        console.print(escape(sentence), soft_wrap=True)
    console.print(
        f"written to {escape(folder)}; look at {escape(folder)}/index.html", soft_wrap=True
    )


def _star(exploration: Exploration) -> str:
    """Say what a star means, if there is one."""
    if all(candidate.on_front for candidate in exploration.candidates):
        return ""
    objectives = objectives_text(exploration.objectives)
    return f"; *: not on the front, as another mapping is at least as good in {objectives}"


def _energy_sources(candidates: Sequence[Candidate]) -> str:
    """Say where energy comes from, by where figures come from; empty: it is not known."""
    kinds: dict[str, dict[str, None]] = {}
    for figures in (figures for candidate in candidates for figures in candidate.figures):
        if figures.energy_source is not None:
            kinds.setdefault(figures.source, {})[figures.energy_source] = None
    texts = [f"{' or '.join(found)} in {source} figures" for source, found in kinds.items()]
    return f"energy is {', '.join(texts)}" if texts else ""


def _row(candidate: Candidate, figures: Figures) -> list[str]:
    if figures.source != "predicted":
        return ["", *_figures(figures), "", figures.source]
    number = f"{candidate.number}" if candidate.on_front else f"{candidate.number}*"
    return [number, *_figures(figures), str(len(candidate.boards)), escape(_keys(candidate))]


def _figures(figures: Figures) -> list[str]:
    memory, energy = figures.memory_bytes, figures.energy_j
    return [
        rate_text(figures.throughput_fps),
        f"{1e3 * figures.latency_s:.3g} ms",
        "-" if memory is None else bytes_text(memory),
        "-" if energy is None else joules_text(energy),
    ]


def _keys(candidate: Candidate) -> str:
    keys = [load.key for load in candidate.ranks]
    shown = ", ".join(map(shortened, keys[:_MAX_KEYS]))
    return shown if len(keys) <= _MAX_KEYS else f"{shown}, ... and {len(keys) - _MAX_KEYS} more"
