"""The slices of the fastest pipeline of contiguous layers, for the profiler to measure."""

from __future__ import annotations

import itertools

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.search.planned import ContiguousPlanner, apart
from rankslice.exploration.times.spans import Slice

__all__ = ["fastest_slices", "slices_of"]


def fastest_slices(problem: Problem) -> tuple[Slice, ...]:
    """Return the slices of the fastest pipeline; none if no pipeline can run the model.

    Of devices that share cores the first one takes part.
    """
    planned = ContiguousPlanner(problem).plan(apart(problem, range(len(problem.devices))))
    return () if planned is None else slices_of(problem, [*map(int, planned.assignment)])


def slices_of(problem: Problem, assignment: list[int]) -> tuple[Slice, ...]:
    """Return the slices of an assignment of contiguous layers: (layers,) devices."""
    layers = itertools.groupby(enumerate(assignment), key=lambda pair: pair[1])
    spans = [(device, [layer for layer, _ in group]) for device, group in layers]
    return tuple(
        Slice(problem.devices[device].kind, numbers[0], numbers[-1]) for device, numbers in spans
    )
