"""``rankslice profile``: how long layers and slices take on the accelerators of a platform."""

from __future__ import annotations

from collections.abc import Callable

from rankslice.commands.profile.profiler import Profiler
from rankslice.commands.profile.time_limit import TimeLimit
from rankslice.exploration.search.planned import fastest_slices
from rankslice.exploration.times.refinement import Refinement, Round

_FIRST_SHARE = 0.8
"""Of a time limit: what is left after it is for the slices of plans."""


def profile_model(
    profiler: Profiler,
    *,
    refined: bool = True,
    seconds: float | None = None,
    on_round: Callable[[Round], None] = lambda done: None,
) -> Refinement | None:
    """Measure a model's first spans, and those of the fastest pipeline until its times are true.

    Args:
        profiler: ready.
        refined: plan, too; without, only the first spans are measured, and ``None`` is returned.
        seconds: after which nothing more is begun; ``None``: all is measured.
        on_round: called with each plan that was tried.
    """
    limit = TimeLimit(seconds)
    profiler.measure_first(limit.share(_FIRST_SHARE) if refined else limit)
    if not refined:
        return None
    return profiler.refine(
        lambda times: fastest_slices(profiler.problem(times)), on_round=on_round, limit=limit
    )
