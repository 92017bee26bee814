"""The search space of a problem, its blocks of layers, and the scores of its mappings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.cost_model import core_groups, evaluate
from rankslice.exploration.cost.populations import occurring
from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.front import Population, Scores
from rankslice.exploration.search.planned import crossing_bytes
from rankslice.exploration.search.space import Score, SearchSpace

_BLOCKS_PER_DEVICE = 4
"""With ``--coarse``: enough to balance the devices, few enough to be searched well."""

_MIN_BLOCKS = 24


def space_of(problem: Problem, objectives: Sequence[str], *, coarse: bool = False) -> SearchSpace:
    """Return the search space: all mappings; with ``coarse``, those of blocks of layers first."""
    blocks = None
    if coarse:
        most = max(_MIN_BLOCKS, _BLOCKS_PER_DEVICE * len(problem.devices))
        times = np.where(np.isfinite(problem.times_s), problem.times_s, 0).mean(axis=0)
        blocks = coarse_blocks(times, crossing_bytes(problem), most)
    numbers = len(problem.devices) + len(problem.teams)
    enough_s = problem.between_frames_s
    return SearchSpace(len(problem.layers), numbers, len(objectives), blocks, enough_s)


def scorer(problem: Problem, objectives: Sequence[str]) -> Score:
    """Return a function that scores populations, values in the order of the objectives.

    Values are NaN for objectives that the cost model cannot predict.

    A mapping is impossible to the extent that layers stand where they cannot run, ranks want the
    same cores, memory does not suffice, what belongs together is apart, or devices that take turns
    have other layers, too.
    """
    rows = [OBJECTIVES[name] for name in objectives]
    clashes = {pair for group in core_groups(problem) for pair in itertools.combinations(group, 2)}
    is_member = problem.is_member.astype(bool)
    cannot_run = is_member @ ~np.isfinite(problem.times_s)[problem.device_kinds]
    capacity = max((board.memory_bytes or 0 for board in problem.boards), default=0) or 1

    def score(population: Population) -> Scores:
        evaluated = evaluate(problem, population, latency=any(row.needs_latency for row in rows))
        costs = [
            np.full(len(population), np.nan)
            if row.evaluated is None
            else row.evaluated(problem, population, evaluated)
            for row in rows
        ]
        layers = np.arange(population.shape[1])
        excess = cannot_run[population, layers].sum(axis=1).astype(np.float64)
        used = occurring(population, len(is_member)) @ is_member
        for one, other in clashes:
            excess += used[:, one] & used[:, other]
        excess += evaluated.excess_bytes / capacity
        excess += np.where((excess == 0) & ~np.isfinite(evaluated.bottleneck_s), 1.0, 0.0)
        boards = (used @ problem.is_on_board.astype(bool)).sum(axis=1)
        return Scores(np.stack(costs, axis=1), excess, boards)

    return score


def coarse_blocks(
    work: NDArray[np.float64], crossing: NDArray[np.float64], most: int
) -> NDArray[np.int64]:
    """Return the number of the block that each layer belongs to: (layers,), ascending from 0.

    The work is divided into ``most`` equal parts; each border may then move by half a part, to
    where the fewest bytes cross.

    Args:
        work: (layers,) how much each layer has to do, in any unit.
        crossing: (layers - 1,) bytes that cross between each layer and the next.
        most: number of blocks; there are fewer where one layer has the work of several parts.
    """
    done = np.cumsum(work, dtype=np.float64)
    done /= done[-1] or 1
    # Of each border, the end of a part that is nearest: border i is between layers i and i + 1.
    parts = done[:-1] * most
    near = np.floor(parts + 0.5).astype(np.int64)
    borders = np.zeros(len(work), np.int64)
    for part in range(1, most):
        candidates = np.flatnonzero(near == part)
        if len(candidates):
            off = np.abs(parts[candidates] - part)
            borders[candidates[np.lexsort((off, crossing[candidates]))[0]] + 1] = 1
    return np.cumsum(borders)
