"""Mappings found by NSGA-II: any mapping, several objectives.

A chromosome has one gene per layer, in topological order: the number of the device that runs it
(Guo et al., AutoDiCE, section IV-A). Crossover swaps a stretch of layers between two parents. A
mutation moves what makes a difference to a pipeline: a stretch of layers, a border between two
stages, two devices that change roles, or a device that is given up.

NSGA-II: Deb et al., A fast and elitist multiobjective genetic algorithm, 2002; of pymoo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.results.front import Archive, nondominated
from rankslice.framework.errors import RankSliceError

__all__ = ["GeneticOptions", "Score", "Scores", "SearchSpace", "nsga2"]

_TRIES = 10
"""How often to draw for each mapping of the first population, if those drawn are there already."""

Population: TypeAlias = NDArray[np.int64]
"""(individuals, layers): numbers of devices."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What a population is worth."""

    values: NDArray[np.float64]
    """(individuals, objectives): each the better the smaller; anything where ``excess`` > 0."""
    excess: NDArray[np.float64]
    """(individuals,): by how much a mapping is impossible; 0 for those that are possible."""
    groups: NDArray[np.int64]
    """(individuals,): the number of boards in use."""


Score: TypeAlias = Callable[[Population], Scores]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What is searched."""

    layers: int
    devices: int
    objectives: int
    blocks: NDArray[np.int64] | None = None
    """(layers,): the number of the block each layer belongs to, ascending from 0; with them,
    the first half of the generations moves whole blocks."""


@dataclass(frozen=True, slots=True)
class GeneticOptions:
    """Settings of the search; the defaults are those of the AutoDiCE paper."""

    population: int = 100
    mutation: float = 0.1
    """Probability that a child is mutated."""
    crossover: float = 0.5
    """Probability that two parents mix; their children are copies otherwise."""
    generations: int = 400
    seed: int = 0


def nsga2(
    score: Score,
    space: SearchSpace,
    genetics: GeneticOptions = GeneticOptions(),
    seeds: Population | None = None,
    on_generation: Callable[[int], None] = lambda generation: None,
    is_enough: Callable[[], bool] = lambda: False,
) -> Archive:
    """Return the best of all mappings that NSGA-II tried, in each respect.

    The same arguments give the same answer.

    Args:
        score: evaluates a whole population at once.
        space: layers, devices, and the number of objectives.
        genetics: settings of the search.
        seeds: (n, layers): mappings to begin with; mappings of contiguous slices, drawn at random,
            fill the first population up.
        on_generation: told how many generations are done.
        is_enough: asked after each generation whether to end before the last one.

    Raises:
        RankSliceError: pymoo is not installed.
    """
    found = Archive(space.layers, space.objectives)
    seeds = np.empty((0, space.layers), np.int64) if seeds is None else seeds
    seeds = _best_first(score, seeds, found)
    if space.blocks is None:
        _evolve(score, space, genetics, seeds, found, on_generation, is_enough)
        return found
    blocks = space.blocks
    first_layers = np.unique(blocks, return_index=True)[1]
    halved = replace(genetics, generations=genetics.generations // 2)
    rest = replace(genetics, generations=genetics.generations - halved.generations)
    if halved.generations:
        _evolve(
            lambda population: score(population[:, blocks]),
            replace(space, layers=len(first_layers), blocks=None),
            halved,
            seeds[:, first_layers],
            _Expanding(found, blocks),
            on_generation,
            is_enough,
        )
    best = [found.best(group, n) for group in found.groups for n in range(space.objectives)]
    begun = np.array([row for row in best if row is not None], np.int64)
    begun = begun.reshape(-1, space.layers)
    _evolve(
        score,
        space,
        rest,
        np.concatenate([found.assignments, begun, seeds]),
        found,
        lambda generation: on_generation(halved.generations + generation),
        is_enough,
    )
    return found


def _best_first(score: Score, seeds: Population, found: Archive) -> Population:
    """Put seeds into the archive; return them, those first that no other one beats."""
    if not len(seeds):
        return seeds
    seeds = seeds[np.sort(np.unique(seeds, axis=0, return_index=True)[1])]
    scores = score(seeds)
    possible = np.flatnonzero(scores.excess <= 0)
    found.add(seeds[possible], scores.values[possible], scores.groups[possible])
    first = possible[nondominated(scores.values[possible])]
    return np.concatenate([seeds[first], np.delete(seeds, first, axis=0)])


class _Expanding:
    """Takes mappings of blocks into an archive of mappings of layers."""

    def __init__(self, archive: Archive, blocks: NDArray[np.int64]) -> None:
        self._archive = archive
        self._blocks = blocks

    def add(
        self, assignments: Population, values: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        self._archive.add(assignments[:, self._blocks], values, groups)


def _evolve(
    score: Score,
    space: SearchSpace,
    genetics: GeneticOptions,
    seeds: Population,
    found: Archive | _Expanding,
    on_generation: Callable[[int], None],
    is_enough: Callable[[], bool],
) -> None:
    """Run NSGA-II; put what it meets into ``found``."""
    random = np.random.default_rng(genetics.seed)
    first = first_population(space, genetics.population, seeds, random)
    algorithm = _algorithm(score, space, genetics, first, found)
    generation = 0
    while algorithm.has_next() and not is_enough():
        algorithm.next()
        generation += 1
        on_generation(generation)
    # It ends early where no child differs from what is there already: small cases.
    on_generation(genetics.generations)


def _algorithm(
    score: Score,
    space: SearchSpace,
    genetics: GeneticOptions,
    first: Population,
    found: Archive | _Expanding,
) -> Any:
    """Return pymoo's NSGA-II, ready to run."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.crossover import Crossover
        from pymoo.core.duplicate import DuplicateElimination
        from pymoo.core.mutation import Mutation
        from pymoo.core.problem import Problem
        from pymoo.core.repair import Repair
        from pymoo.termination import get_termination
    except ImportError:
        raise RankSliceError(
            "NSGA-II needs pymoo: pip install 'rankslice[explore]', or take --method exact"
        ) from None

    class Stretches(Crossover):  # type: ignore[misc, unused-ignore]
        """Swaps a stretch of layers between two parents."""

        def _do(self, problem: Any, x: Any, *_: Any, random_state: Any, **__: Any) -> Any:
            return swap_stretches(x, random_state)

    class Moves(Mutation):  # type: ignore[misc, unused-ignore]
        """Moves layers from device to device."""

        def _do(self, problem: Any, x: Any, *_: Any, random_state: Any, **__: Any) -> Any:
            return np.array([mutated(row, space.devices, random_state) for row in x])

    class Equal(DuplicateElimination):  # type: ignore[misc, unused-ignore]
        """Finds mappings that are there already."""

        def _do(self, pop: Any, other: Any, is_duplicate: Any) -> Any:
            known = set() if other is None else {row.tobytes() for row in other.get("X")}
            for number, row in enumerate(pop.get("X")):
                is_duplicate[number] = row.tobytes() in known
                known.add(row.tobytes())
            return is_duplicate

    class Fresh(Repair):  # type: ignore[misc, unused-ignore]
        """Mutates children that are like what is there already."""

        def _do(self, problem: Any, x: Any, algorithm: Any, random_state: Any, **_: Any) -> Any:
            there = () if algorithm.pop is None else algorithm.pop.get("X")
            return fresh_children(x, there, space.devices, random_state)

    class Mappings(Problem):  # type: ignore[misc, unused-ignore]
        """Tells pymoo what a population is worth."""

        def _evaluate(self, x: Any, out: Any, *_: Any, **__: Any) -> None:
            scores = score(x)
            possible = scores.excess <= 0
            found.add(x[possible], scores.values[possible], scores.groups[possible])
            out["F"] = np.where(possible[:, None], scores.values, 0.0)
            out["G"] = scores.excess[:, None]

    algorithm = NSGA2(
        pop_size=genetics.population,
        sampling=first,
        crossover=Stretches(2, 2, prob=genetics.crossover),
        mutation=Moves(prob=genetics.mutation),
        repair=Fresh(),
        eliminate_duplicates=Equal(),
        output=None,
    )
    problem = Mappings(
        n_var=space.layers,
        n_obj=space.objectives,
        n_ieq_constr=1,
        xl=0,
        xu=space.devices - 1,
        vtype=int,
    )
    ending = get_termination("n_gen", genetics.generations)
    return algorithm.setup(problem, termination=ending, seed=genetics.seed)


def first_population(
    space: SearchSpace, size: int, seeds: Population, random: np.random.Generator
) -> Population:
    """Return (size, layers) mappings to begin with: seeds, then contiguous slices at random.

    No more than half are seeds, the first ones, so that the search does not begin in one corner.
    """
    known = {row.tobytes(): row for row in seeds[: max(1, size // 2)]}
    for _ in range(_TRIES * size):  # small cases may have fewer
        if len(known) == size:
            break
        row = contiguous(space, random)
        known.setdefault(row.tobytes(), row)
    return np.array(list(known.values()), np.int64)


def contiguous(space: SearchSpace, random: np.random.Generator) -> NDArray[np.int64]:
    """Return a mapping of contiguous slices, each on a device of its own, all drawn at random."""
    stages = int(random.integers(1, min(space.devices, space.layers) + 1))
    cuts = random.choice(space.layers - 1, stages - 1, replace=False) + 1
    devices = random.permutation(space.devices)[:stages]
    return devices[np.searchsorted(np.sort(cuts), np.arange(space.layers), side="right")]


def swap_stretches(parents: Any, random: np.random.Generator) -> Any:
    """Return (2, matings, layers) children: each pair of parents swaps one stretch of layers."""
    _, matings, layers = parents.shape
    ends = np.sort(random.integers(0, layers + 1, (matings, 2)), axis=1)
    position = np.arange(layers)
    inside = (ends[:, :1] <= position) & (position < ends[:, 1:])
    return np.where(inside, parents[::-1], parents)


def fresh_children(
    children: Population,
    there: Iterable[NDArray[np.int64]],
    devices: int,
    random: np.random.Generator,
) -> Population:
    """Return the children, those mutated that are like one before them or one that is there.

    They would be a loss of time: their figures are known. Where the population is of one mind,
    nearly all children are of that kind.
    """
    known = {row.tobytes() for row in there}
    rows = []
    for child in children:
        row = mutated(child, devices, random) if child.tobytes() in known else child
        known.add(row.tobytes())
        rows.append(row)
    return np.array(rows, np.int64)


def mutated(row: NDArray[np.int64], devices: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return a mapping that differs from ``row`` by one move."""
    moves = (_move_stretch, _move_border, _swap_devices, _give_up_device)
    move = moves[int(random.integers(len(moves)))]
    return move(row.copy(), devices, random)


def _length(most: int, random: np.random.Generator) -> int:
    """Return a length from 1 to ``most``: short ones are as likely as long ones."""
    return min(most, int(math.exp(random.random() * math.log(most + 1))))


def _move_stretch(
    row: NDArray[np.int64], devices: int, random: np.random.Generator
) -> NDArray[np.int64]:
    length = _length(len(row), random)
    start = int(random.integers(len(row) - length + 1))
    row[start : start + length] = random.integers(devices)
    return row


def _move_border(
    row: NDArray[np.int64], devices: int, random: np.random.Generator
) -> NDArray[np.int64]:
    borders = np.flatnonzero(row[1:] != row[:-1]) + 1
    if not len(borders):
        return _move_stretch(row, devices, random)
    border = int(random.choice(borders))
    if random.random() < 0.5:
        length = _length(len(row) - border, random)
        row[border : border + length] = row[border - 1]
    else:
        length = _length(border, random)
        row[border - length : border] = row[border]
    return row


def _swap_devices(
    row: NDArray[np.int64], devices: int, random: np.random.Generator
) -> NDArray[np.int64]:
    first, second = random.choice(np.unique(row)), random.integers(devices)
    swapped = row.copy()
    swapped[row == first] = second
    swapped[row == second] = first
    return swapped


def _give_up_device(
    row: NDArray[np.int64], devices: int, random: np.random.Generator
) -> NDArray[np.int64]:
    used = np.unique(row)
    row[row == random.choice(used)] = random.choice(used)
    return row
