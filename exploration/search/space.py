"""The search space of a problem, the scores of its mappings, and the search that tries all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.cost_model import core_groups, evaluate
from rankslice.exploration.cost.populations import occurring
from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.front import Archive, Population, Scores
from rankslice.exploration.search.planned import crossing_bytes
from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import count_text

Score: TypeAlias = Callable[[Population], Scores]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What is searched."""

    layers: int
    devices: int
    """How many numbers an assignment may have: of devices, and of teams of devices in turn."""
    objectives: int
    blocks: NDArray[np.int64] | None = None
    """(layers,): the number of the block each layer belongs to, ascending from 0; with them,
    whole blocks are moved, by NSGA-II in the first half of its generations."""
    enough_s: float = 0.0
    """Time between frames that come by the clock; 0: as fast as possible."""

    @property
    def genes(self) -> int:
        """How many layers, or blocks of layers, get a device each."""
        return self.layers if self.blocks is None else int(self.blocks[-1]) + 1

    @property
    def mappings(self) -> int:
        return int(self.devices**self.genes)


def is_contiguous(population: Population, devices: int) -> NDArray[np.bool_]:
    """Tell which assignments give each device one span of layers."""
    runs = 1 + (population[:, 1:] != population[:, :-1]).sum(axis=1)
    return np.asarray(runs == occurring(population, devices).sum(axis=1))


class Search:
    """Scores the mappings that a search proposes, and keeps the best of them."""

    def __init__(self, score: Score, space: SearchSpace) -> None:
        """Take a score whose first objective is throughput."""
        self._score, self.space = score, space
        self.archive = Archive(space.layers, space.objectives, space.enough_s)
        self.count = 0
        self.contiguous_s = float("inf")
        """Time per frame of the fastest contiguous mapping."""
        self.any_s = float("inf")
        """Of the fastest of all."""

    def __call__(self, population: Population) -> Scores:
        """Score (mappings, layers) or (mappings, blocks) numbers of devices."""
        if self.space.blocks is not None and population.shape[1] < self.space.layers:
            population = population[:, self.space.blocks]
        scores = self._score(population)
        self.count += len(population)
        self.archive.add(population, scores)
        times = np.where(scores.excess <= 0, scores.values[:, 0], np.inf)
        contiguous = is_contiguous(population, self.space.devices)
        self.any_s = float(times.min(initial=self.any_s))
        self.contiguous_s = float(times.min(initial=self.contiguous_s, where=contiguous))
        return scores


MAX_MAPPINGS = 2_000_000
"""Limit of ``--method exhaustive``: about a minute for a small network."""

_AT_ONCE = 4096


def exhaustive(
    search: Search,
    most: int = MAX_MAPPINGS,
    on_mappings: Callable[[int], None] = lambda count: None,
    otherwise: str = "use nsga2 or exact",
) -> Archive:
    """Return the best of all mappings there are, in each respect.

    With blocks in the search space, of all mappings that keep each block together.

    Args:
        otherwise: advice if there are more, as a clause.

    Raises:
        RankSliceError: there are more than ``most``.
    """
    space, count = search.space, search.space.mappings
    if count > most:
        what = f"{space.genes} {'layers' if space.blocks is None else 'blocks of layers'}"
        raise RankSliceError(
            f"{what} on {space.devices} accelerators can be mapped in {_counted(count)}"
            f" ways, and --method exhaustive tries at most {_counted(most)}; {otherwise}"
        )
    for start in range(0, count, _AT_ONCE):
        end = min(start + _AT_ONCE, count)
        search(every_mapping(space.devices, space.genes, start, end))
        on_mappings(end)
    return search.archive


def every_mapping(devices: int, genes: int, start: int, end: int) -> Population:
    """Return mappings number ``start`` to ``end`` of all there are: (end - start, genes)."""
    powers = np.array([devices**gene for gene in reversed(range(genes))], dtype=np.int64)
    return np.arange(start, end, dtype=np.int64)[:, None] // powers % devices


def _counted(count: int) -> str:
    return count_text(count) if count < 10**18 else f"10^{len(str(count)) - 1}"


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


def search_of(problem: Problem, objectives: Sequence[str], *, coarse: bool = False) -> Search:
    """Return a search of a problem's mappings that scores them by the cost model."""
    return Search(scorer(problem, objectives), space_of(problem, objectives, coarse=coarse))


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
