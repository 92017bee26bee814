"""Objectives: what makes one mapping better than another, a row of :data:`OBJECTIVES` for each.

Searches, the front, files, the page and the terminal ask the rows. Only the cost model
(:mod:`rankslice.exploration.cost.cost_model`) and the plans that a search begins with
(:mod:`rankslice.exploration.search.seeds`) name objectives themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.wording import bytes_text, digits, joined, joules_text, listed, quoted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rankslice.exploration.cost.cost_model import Evaluations
    from rankslice.exploration.problem.problem import Problem
    from rankslice.exploration.results.candidates import Candidate, Figures


@dataclass(frozen=True, slots=True)
class Column:
    """A name that tells a unit, and how to convert a value to this unit."""

    name: str
    convert: Callable[[float], float] = lambda value: value


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective: where its values come from, and how they are shown."""

    name: str
    """As in ``--objectives``."""
    value: Callable[[Candidate, Figures], float | None]
    """Returns the value of a mapping, given its figures: those that were predicted, simulated or
    measured (see ``Figures.basis``). ``None``: not known."""
    evaluated: Callable[[Problem, NDArray[np.int64], Evaluations], NDArray[np.float64]] | None
    """Returns the costs of many mappings, (mappings,), as :meth:`cost` has them, given the numbers
    of their layers' devices, (mappings, layers), and what the cost model says of them. ``None``:
    the cost model cannot tell, so the objective needs ``--evaluate run``."""
    needs_latency: bool = False
    """Whether ``evaluated`` reads ``latency_s``, which takes the cost model most of its time."""
    larger_is_better: bool = False
    """If so, values are positive."""
    text: Callable[[float], str]
    unit: str = ""
    """Heads columns of values, instead of the name, and follows values elsewhere. Empty: ``text``
    contains the unit."""
    axis: Column
    """Label of the page's axis, and its values."""
    json: Column
    """Name in ``front.json``, and its values."""
    csv: Column
    """Column of ``front.csv``, and its values."""
    basis: Callable[[Figures], str | None] | None = None
    """Returns whether a value was measured or modelled, if that is not the basis of the other
    figures, too."""
    extreme: str = ""
    """How the answer names the best value: ``The least memory per board``. Empty: it does not."""
    why_unknown: Callable[[Problem], str] = lambda problem: ""
    """Returns a sentence if the cost model cannot tell values of this problem; empty: it can."""

    @property
    def head(self) -> str:
        return self.unit or self.name

    def full_text(self, value: float) -> str:
        return f"{self.text(value)} {self.unit}".rstrip()

    def cost(self, value: float) -> float:
        """Return the cost to minimise: a value, or its inverse if larger is better."""
        if not self.larger_is_better:
            return value
        return 1 / value if value else math.inf

    def cost_of(self, candidate: Candidate) -> float:
        """Return the cost of a mapping by its best known figures; infinite: not known."""
        value = self.value(candidate, candidate.best_known)
        return math.inf if value is None else self.cost(value)

    def cell(self, candidate: Candidate, figures: Figures, unknown: str) -> str:
        value = self.value(candidate, figures)
        return unknown if value is None else self.text(value)

    def basis_text(self, figures: Figures) -> str:
        """Return `` (measured)`` or `` (modelled)``; empty if values have no basis of their own."""
        basis = self.basis(figures) if self.basis else None
        return f" ({basis})" if basis else ""


def rate_text(fps: float) -> str:
    """Return a rate with about three digits: ``31.4``, ``812``."""
    decimals = 2 if fps < 9.995 else 1 if fps < 99.95 else 0
    return f"{fps:.{decimals}f}"


def _milliseconds(seconds: float) -> float:
    return 1e3 * seconds


def _megabytes(nbytes: float) -> float:
    return nbytes / 1e6


def _why_energy_is_unknown(problem: Problem) -> str:
    if problem.has_energy:
        return ""
    if problem.platform == "local":
        return (
            "Energy is left out: the profile has none, and no platform file gives power figures of"
            " this machine (idle_w, busy_w)."
        )
    powerless = [board.name for board in problem.boards if board.idle_w is None]
    where = f" of {listed(powerless)}" if powerless else ""
    return (
        f"Energy is left out: the profile has none, and {problem.platform} gives no power figures"
        f"{where} (idle_w, busy_w)."
    )


OBJECTIVES = {
    row.name: row
    for row in (
        Objective(
            name="throughput",
            value=lambda _, figures: figures.throughput_fps,
            evaluated=lambda _, __, costs: costs.bottleneck_s,
            larger_is_better=True,
            text=rate_text,
            unit="frames/s",
            axis=Column("throughput, frames/s"),
            json=Column("throughput_fps"),
            csv=Column("throughput_fps"),
        ),
        Objective(
            name="energy",
            value=lambda _, figures: figures.energy_j,
            evaluated=lambda _, __, costs: costs.energy_j,
            text=joules_text,
            axis=Column("worst energy per board, J per frame"),
            json=Column("worst_energy_j"),
            csv=Column("worst_energy_j"),
            basis=lambda figures: figures.energy_basis,
            extreme="The least energy per board and frame",
            why_unknown=_why_energy_is_unknown,
        ),
        Objective(
            name="memory",
            value=lambda _, figures: figures.memory_bytes,
            evaluated=lambda _, __, costs: costs.memory_bytes,
            text=lambda nbytes: bytes_text(round(nbytes)),
            axis=Column("worst memory per board, MB", _megabytes),
            json=Column("worst_memory_bytes"),
            csv=Column("worst_memory_mb", _megabytes),
            extreme="The least memory per board",
        ),
        Objective(
            name="latency",
            value=lambda _, figures: figures.latency_s,
            evaluated=lambda _, __, costs: costs.latency_s,
            needs_latency=True,
            text=lambda seconds: f"{digits(_milliseconds(seconds))} ms",
            axis=Column("latency, ms", _milliseconds),
            json=Column("latency_ms", _milliseconds),
            csv=Column("latency_ms", _milliseconds),
        ),
    )
}
"""By name; throughput, which always takes part, comes first."""

_FIRST_COLUMNS = ("throughput", "latency", "memory", "energy")


def columns() -> tuple[Objective, ...]:
    """Return all objectives in the order of the columns of files and tables."""
    return tuple(OBJECTIVES[name] for name in dict.fromkeys((*_FIRST_COLUMNS, *OBJECTIVES)))


def check_objectives(names: Sequence[str], evaluate: str) -> None:
    """Check that all objectives exist, and are known to what evaluates mappings.

    Raises:
        RankSliceError: one is unknown, or known of runs only, and mappings are not run.
    """
    raise_mistakes(
        Mistake(
            "--objectives",
            f"there is no objective {quoted(name)}",
            nearest(name, OBJECTIVES) or f"expected {joined(tuple(OBJECTIVES), 'or')}",
        )
        for name in names
        if name not in OBJECTIVES
    )
    raise_mistakes(
        Mistake(
            "--objectives",
            f"only runs tell {quoted(name)}, and mappings are not run",
            "add --evaluate run",
        )
        for name in names
        if OBJECTIVES[name].evaluated is None and evaluate != "run"
    )


def available_objectives(
    problem: Problem, names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the objectives whose values are known, and for each other one a sentence why not."""
    reasons = {name: OBJECTIVES[name].why_unknown(problem) for name in names}
    known = tuple(name for name, reason in reasons.items() if not reason)
    return known, tuple(filter(None, reasons.values()))
