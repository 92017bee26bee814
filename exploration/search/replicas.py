"""Whether the whole model on several devices in turn is faster than slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rankslice.exploration.objectives import rate_text
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.problem.teams import with_turns
from rankslice.exploration.results.records import Candidate
from rankslice.exploration.search.scoring import scorer

_WORTH = 1.01
"""How many times as fast it must be to be worth a word."""


def whole_in_turn(problem: Problem) -> tuple[str, float] | None:
    """Return the fastest way to have the whole model in turn: its mapping's key, and frames/s.

    By the cost model; ``None``: no devices of one kind can take turns with it.
    """
    made = with_turns(problem, len(problem.devices))
    if not made.teams:
        return None
    numbers = len(problem.devices) + np.arange(len(made.teams))
    rows = np.repeat(numbers[:, np.newaxis], len(made.layers), axis=1)
    found = scorer(made, ("throughput",))(rows)
    times = np.where(found.excess <= 0, found.values[:, 0], np.inf)
    best = int(times.argmin())
    if not np.isfinite(times[best]) or times[best] <= 0:
        return None
    return made.teams[best].key([device.key for device in made.devices]), 1 / float(times[best])


def replicas_text(problem: Problem, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Say if the whole model in turn beats the fastest slices that were found."""
    found = whole_in_turn(problem)
    plain = [
        each.figures[0].throughput_fps
        for each in candidates
        if all(not load.in_turn_key for load in each.ranks)
    ]
    if found is None or not plain:
        return
    key, rate = found
    slices = max(plain)
    if rate > _WORTH * slices:
        yield (
            f"The whole model in turn beats slices here: {key} gives {rate_text(rate)} frames/s by"
            f" the cost model, the fastest slices {rate_text(slices)}. Each of them holds all"
            " weights; --turns searches such mappings, too."
        )
