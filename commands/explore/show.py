"""An exploration, printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rankslice.exploration.objectives import columns
from rankslice.exploration.results.answer import (
    failure_texts,
    mappings_text,
    tried_text,
)
from rankslice.exploration.results.candidates import Candidate, Exploration, Figures
from rankslice.framework.wording import joined
from rankslice.views.content import Table
from rankslice.views.exploration_page import scaling_table, strategies_table
from rankslice.views.terminal import MAX_LINE, shortened, show

_MAX_KEYS = 6


def print_exploration(exploration: Exploration, folder: str, console: Console) -> None:
    head = ("mapping", *(row.head for row in columns()), "boards", "accelerators")
    caption = f"memory and energy per frame: of the board that needs most{_star(exploration)}"
    rows = tuple(
        _row(candidate, figures)
        for candidate in exploration.candidates
        for figures in candidate.figures
    )
    show(console, Table(caption, head, rows), max_cell=MAX_LINE)
    if exploration.scaling:
        show(console, scaling_table(exploration.scaling), max_cell=MAX_LINE)
    if exploration.strategies:
        show(console, strategies_table(exploration), max_cell=MAX_LINE)
    show(
        console,
        *_bases(exploration.candidates),
        f"{mappings_text(exploration.evaluations)} evaluated by {exploration.method}",
        *([tried_text(exploration)] if exploration.tried_by else []),
        *exploration.left_out,
        *failure_texts(exploration.failures),
        *exploration.answer,
        f"written to {folder}; look at {folder}/index.html",
    )


def _star(exploration: Exploration) -> str:
    if all(candidate.on_front for candidate in exploration.candidates):
        return ""
    objectives = joined(exploration.objectives)
    return f"; *: not on the front, as another mapping is at least as good in {objectives}"


def _bases(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield where an objective's values come from, if they have a basis of their own."""
    every = [figures for candidate in candidates for figures in candidate.figures]
    for row in columns():
        kinds: dict[str, dict[str, None]] = {}
        for figures in every:
            if row.basis and (basis := row.basis(figures)):
                kinds.setdefault(figures.basis, {})[basis] = None
        texts = [f"{' or '.join(sources)} in {basis} figures" for basis, sources in kinds.items()]
        if texts:
            yield f"{row.name} is {', '.join(texts)}"


def _row(candidate: Candidate, figures: Figures) -> tuple[str, ...]:
    cells = [row.cell(candidate, figures, "-") for row in columns()]
    if figures.basis != "predicted":
        return ("", *cells, "", figures.basis)
    number = f"{candidate.number}" if candidate.on_front else f"{candidate.number}*"
    return (number, *cells, str(len(candidate.boards)), _keys(candidate))


def _keys(candidate: Candidate) -> str:
    keys = list(candidate.mapping)
    shown = ", ".join(map(shortened, keys[:_MAX_KEYS]))
    return shown if len(keys) <= _MAX_KEYS else f"{shown}, ... and {len(keys) - _MAX_KEYS} more"
