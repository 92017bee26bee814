"""Mappings of the exact planner, without a search for better ones: within seconds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import candidates_of
from rankslice.exploration.results.front import Population
from rankslice.exploration.results.records import Candidate
from rankslice.exploration.search.planned import ContiguousPlanner
from rankslice.exploration.search.scoring import scorer
from rankslice.exploration.search.seeds import balanced_seeds, planned_seeds


def planned_mappings(problem: Problem, board: str | None = None) -> tuple[Candidate, ...]:
    """Return mappings of contiguous slices that can run, the fastest first.

    They are the planner's fastest one, and slices balanced by layers' times; if none of them can
    run, the planner's for each set of boards.

    Args:
        problem: layers and devices.
        board: name of a board that they have to use; ``None``: there is none.
    """
    for rows in _populations(problem):
        possible = rows[scorer(problem, ("throughput",))(rows).excess <= 0]
        found = candidates_of(problem, [(row, True) for row in possible])
        wanted = tuple(each for each in found if board is None or board in each.boards)
        if wanted:
            return wanted
    return ()


def _populations(problem: Problem) -> Iterator[Population]:
    planner = ContiguousPlanner(problem)
    plan = planner.plan(planner.devices)
    first = balanced_seeds(problem)
    if plan is not None:
        first = np.concatenate([plan.assignment[np.newaxis], first])
    yield np.unique(first, axis=0)
    yield np.unique(planned_seeds(problem), axis=0)
