"""The slices of the fastest pipeline of contiguous layers, for the profiler to measure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rankslice.exploration.exact_plans import ExactPlanner
from rankslice.exploration.problem import Problem
from rankslice.exploration.spans import Slice

__all__ = ["fastest_slices", "slices_of"]


def fastest_slices(problem: Problem) -> tuple[Slice, ...]:
    """Return the slices of the fastest pipeline; none if no pipeline can run the model.

    Of places that share cores the first one takes part.
    """
    row = ExactPlanner(problem).plan([*_apart(problem)])
    return () if row is None else slices_of(problem, [*map(int, row)])


def slices_of(problem: Problem, assignment: list[int]) -> tuple[Slice, ...]:
    """Return the slices of an assignment of contiguous layers: (layers,) places."""
    layers = itertools.groupby(enumerate(assignment), key=lambda pair: pair[1])
    spans = [(place, [layer for layer, _ in group]) for place, group in layers]
    return tuple(
        Slice(problem.places[place].kind, numbers[0], numbers[-1]) for place, numbers in spans
    )


def _apart(problem: Problem) -> Iterator[int]:
    """Yield the places that can all compute at once."""
    taken: set[tuple[int, int]] = set()
    for number, place in enumerate(problem.places):
        cores = {(place.board, core) for core in place.cores}
        if taken.isdisjoint(cores):
            taken |= cores
            yield number
