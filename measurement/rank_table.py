"""What the ranks of a run did, as one table for terminal and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from rankslice.backend.runtime.figures.rank_figures import RankFigures, RouteFigures
from rankslice.backend.runtime.job import ALL

RANK_CAPTION = "milliseconds per frame; peak memory in MB"
RANK_NAMES = 3
"""Columns at the beginning that are no figures."""

UNKNOWN = "–"


def ms_text(value: float | None) -> str:
    """Return milliseconds with the digits that matter; a dash if they are unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if value >= 1 or not value else f"{value:.3g}"


def mb_text(value: float | None) -> str:
    """Return megabytes; a dash if they are unknown."""
    return UNKNOWN if value is None else f"{value:.0f}"


_TEXTS: dict[str, Callable[[float | None], str]] = {"ms": ms_text, "MB": mb_text}


def rank_table(ranks: Sequence[RankFigures]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows; columns with nothing to tell are left out.

    A figure of :class:`RankFigures` that has a heading has a column.
    """
    has_surge = any(rank.surge for rank in ranks)
    columns = {
        "rank": [str(rank.rank) for rank in ranks],
        "accelerator": [rank.key for rank in ranks],
        "host": [rank.host for rank in ranks],
        "compute p50": [_computed(rank, "p50", may_idle=has_surge) for rank in ranks],
        "p99": [_computed(rank, "p99", may_idle=has_surge) for rank in ranks],
    }
    for field in fields(RankFigures):
        values = [getattr(rank, field.name) for rank in ranks]
        if "heading" in field.metadata and any(value is not None for value in values):
            text = _TEXTS[field.metadata["unit"]]
            columns[field.metadata["heading"]] = [text(value) for value in values]
    surges = [rank.surge for rank in ranks]
    if has_surge:
        for name, percentile in (("surge p50", "p50"), ("surge p99", "p99")):
            columns[name] = [_computed(surge, percentile, may_idle=True) for surge in surges]
    if any(rank.turns != ALL for rank in ranks):
        columns["frames"] = [str(rank.turns) for rank in ranks]
    if any(surge and surge.turns != ALL for surge in surges):
        columns["surge frames"] = [str(surge.turns) if surge else UNKNOWN for surge in surges]
    return (*columns,), [*zip(*columns.values(), strict=True)]


def _computed(figures: RouteFigures | None, percentile: str, *, may_idle: bool) -> str:
    if figures is None or (may_idle and not figures.frames):
        return UNKNOWN
    return ms_text(figures.compute_ms[percentile])
