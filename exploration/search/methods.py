"""Search methods, what is proven of the mappings they find, and how rates grow with boards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from rankslice.exploration.objectives import OBJECTIVES, rate_text
from rankslice.exploration.problem.problem import Problem, with_turns
from rankslice.exploration.results.candidates import (
    Candidate,
    Failure,
    ScalingPoint,
    Selection,
    candidates_of,
    selected,
)
from rankslice.exploration.results.front import Archive, Population, nondominated
from rankslice.exploration.search.local_search import local_search
from rankslice.exploration.search.nsga2 import nsga2
from rankslice.exploration.search.proof import SAME, Proof, prove
from rankslice.exploration.search.search_options import GeneticOptions, SearchOptions
from rankslice.exploration.search.seeds import balanced_seeds, planned_seeds, planned_sweep
from rankslice.exploration.search.space import Search, exhaustive, scorer, search_of
from rankslice.exploration.search.trials import Trials, most_promising
from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.platform import Link, Platform

_MAX_WORK = 1 << 23
"""Layers that ``exact`` assigns in each of its searches: some seconds for a large network."""

_MAX_SEARCHED, _MAX_TRIED = 20_000, 1 << 16
"""Limits of ``exact``: mappings that its local search scores, and that it tries exhaustively."""

_FIRST_POPULATION, _FIRST_GENERATIONS = 100, 100
"""Of the search by the cost model that precedes a search by trials."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found."""

    candidates: tuple[Candidate, ...]
    """The fastest first, and numbered so."""
    method: str
    evaluations: int
    """Mappings that the cost model evaluated."""
    tried: int = 0
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    """What else there is to know of the method's figures, in sentences."""


def find_mappings(
    problem: Problem,
    objectives: Sequence[str],
    options: SearchOptions,
    attempt: Callable[[Candidate], Candidate] | None = None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> SearchResult:
    """Return the best mappings that the chosen method finds.

    Args:
        attempt: simulates or runs a mapping and returns it with its figures added; ``None``: the
            cost model evaluates whole populations at once.

    Raises:
        RankSliceError: there are too many mappings to try all of them.
    """
    searching = _Searching(problem, tuple(objectives), options, on_progress)
    if attempt is None:
        return searching.result(selected(searching.best_by_model(options.genetics), options.keep))
    return searching.by_trials(attempt)


class _Searching:
    def __init__(
        self,
        problem: Problem,
        objectives: tuple[str, ...],
        options: SearchOptions,
        on_progress: Callable[[str, int, int], None],
    ) -> None:
        self._problem, self._options, self._on_progress = problem, options, on_progress
        self._objectives = objectives
        predicted = [name for name in objectives if OBJECTIVES[name].evaluated]
        self._has_unpredicted = len(predicted) < len(objectives)
        coarse = options.coarse and options.method != "exact"
        self._search = search_of(problem, predicted, coarse=coarse)
        self._proof: Proof | None = None
        self._expected = options.trials

    def _on_trial(self, done: int) -> None:
        is_simulated = self._options.evaluate == "simulator"
        step = "simulating mappings" if is_simulated else "running mappings"
        self._on_progress(step, done, self._expected)

    def by_trials(self, attempt: Callable[[Candidate], Candidate]) -> SearchResult:
        most = self._options.trials
        trials = Trials(self._problem, self._objectives, attempt, most, self._on_trial)
        result = self.result(self._kept_by_trials(trials), trials.candidates)
        return replace(result, tried=trials.count, failures=tuple(trials.failures))

    def result(
        self, kept: Selection, tried: Mapping[bytes, Candidate] = MappingProxyType({})
    ) -> SearchResult:
        candidates = candidates_of(self._problem, kept, tried)
        notes = tuple(self._notes())
        return SearchResult(candidates, self._method(), self._search.count, notes=notes)

    def _kept_by_trials(self, trials: Trials) -> Selection:
        options = self._options
        space = replace(self._search.space, objectives=len(self._objectives))
        trying = Search(trials, space)
        if options.method == "exhaustive":
            self._expected = min(space.mappings, options.trials)
            otherwise = "raise --evaluations, or use nsga2 or exact"
            return selected(exhaustive(trying, options.trials, otherwise=otherwise), options.keep)
        best = self.best_by_model(
            replace(options.genetics, population=_FIRST_POPULATION, generations=_FIRST_GENERATIONS)
        )
        if options.method == "exact":
            return self._ranked_anew(selected(best, options.keep), trials)
        size = options.genetics.population
        first, _ = self._split(selected(best, size), min(size, options.trials))
        nsga2(trying, options.genetics, first, is_enough=lambda: trials.is_exhausted)
        return selected(trying.archive, options.keep)

    def best_by_model(self, genetics: GeneticOptions) -> Archive:
        """Return the best mappings by the cost model; NSGA-II has its own settings for that."""
        problem, options = self._problem, self._options
        if options.method == "exact":
            return self._planned()
        if options.method == "exhaustive":
            step, total = "evaluating all mappings", self._search.space.mappings
            return exhaustive(
                self._search, on_mappings=lambda done: self._on_progress(step, done, total)
            )
        return nsga2(
            self._search,
            genetics,
            np.concatenate([planned_seeds(problem), balanced_seeds(problem)]),
            lambda done: self._on_progress(
                "searching, generation by generation", done, genetics.generations
            ),
        )

    def _planned(self) -> Archive:
        search = self._search
        seeds = np.unique(np.concatenate([self._plans(), balanced_seeds(self._problem)]), axis=0)
        most = max(1, _MAX_WORK // search.space.layers)
        tried, searched = min(_MAX_TRIED, most), min(_MAX_SEARCHED, most)
        if search.space.mappings <= tried:
            search(seeds)  # what is there already goes before what is as good
            return exhaustive(search, tried)
        step = "searching by the cost model"
        local_search(search, seeds, searched, lambda done: self._on_progress(step, done, searched))
        self._proof = prove(self._problem, search, tried)
        return search.archive

    def _plans(self) -> Population:
        rows = []
        floor_fps = self._options.fps or 0.0
        plans = planned_sweep(self._problem, self._objectives, floor_fps)
        for number, row in enumerate(plans, 1):
            self._on_progress("planning", number, number + 1)
            rows.append(row)
        return np.array(rows, np.int64).reshape(-1, self._search.space.layers)

    def _ranked_anew(self, kept: Selection, trials: Trials) -> Selection:
        """Return mappings, and which of them are on the front now that the best were tried.

        What failed is left out; what there was no trial left for counts as predicted, if all
        objectives can be.
        """
        chosen, others = self._split(kept, self._options.trials)
        self._expected = len(chosen)
        tried = trials(chosen)
        ran = tried.excess <= 0
        rows, values = chosen[ran], tried.values[ran]
        if not self._has_unpredicted:
            rows = np.concatenate([rows, others])
            values = np.concatenate([values, self._search(others).values])
        front = nondominated(values)
        return [(row, number in front) for number, row in enumerate(rows)]

    def _split(self, kept: Selection, most: int) -> tuple[Population, Population]:
        rows = np.array([row for row, _ in kept], np.int64).reshape(-1, self._search.space.layers)
        scores = self._search(rows)
        with np.errstate(divide="ignore"):  # what takes no time is the fastest
            rates = 1 / scores.values[:, 0]
        chosen = most_promising(rates, scores.groups, most)
        return rows[chosen], np.delete(rows, chosen, axis=0)

    def _notes(self) -> Iterator[str]:
        """Yield what is proven of the fastest mapping, and what is not."""
        proof, fastest_s = self._proof, self._search.any_s
        if self._options.method == "exact" and proof is None:
            yield "Every mapping was tried: by the cost model, none is better than these."
        if proof is None:
            return
        yield _certain(proof)
        if fastest_s < proof.bottleneck_s * (1 - SAME):
            yield (
                "Mappings with ranks whose layers are not neighbours can be faster: the fastest one"
                f" found gives {rate_text(1 / fastest_s)} frames/s by the cost model; that is not"
                " proven to be the best."
            )

    def _method(self) -> str:
        options, genetics = self._options, self._options.genetics
        if options.method == "exhaustive":
            return "trying every mapping"
        if options.method == "exact":
            return "the exact planner, and a search that starts from its plans"
        limit = "" if options.evaluate == "model" else "at most "
        return (
            f"NSGA-II, {limit}{genetics.generations} generations of {genetics.population},"
            f" seed {genetics.seed}{', blocks of layers first' if options.coarse else ''}"
        )


def _certain(proof: Proof) -> str:
    rate, bound = (_rate(seconds) for seconds in (proof.bottleneck_s, proof.bound_s))
    if math.isinf(proof.bottleneck_s):
        which = "can run" if proof.is_proven else "that can run was found"
        return f"No mapping of contiguous slices {which}."
    if proof.is_proven:
        return (
            f"By the cost model no mapping of contiguous slices gives more than {rate} frames/s:"
            " that is proven."
        )
    if not proof.bound_s:
        return f"Not proven: no bound is known of what contiguous slices give, found were {rate}."
    return (
        f"Not proven: the fastest mapping of contiguous slices that was found gives {rate}"
        f" frames/s by the cost model, and none gives more than {bound},"
        f" {proof.bottleneck_s / proof.bound_s:.3g} times as much."
    )


def _rate(seconds: float) -> str:
    return rate_text(1 / seconds) if seconds else "endless"


_WORTH = 1.01
"""How many times as fast it must be to be worth a word."""


def replicas_text(problem: Problem, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Say if the whole model in turn beats the fastest slices that were found."""
    made = with_turns(problem, len(problem.devices))
    plain = [
        candidate.figures[0].throughput_fps
        for candidate in candidates
        if all(not load.in_turn_key for load in candidate.ranks)
    ]
    if not made.teams or not plain:
        return
    numbers = len(problem.devices) + np.arange(len(made.teams))
    rows = np.repeat(numbers[:, np.newaxis], len(made.layers), axis=1)
    scores = scorer(made, ("throughput",))(rows)
    times = np.where(scores.excess <= 0, scores.values[:, 0], np.inf)
    best, slices = int(times.argmin()), max(plain)
    if 0 < _WORTH * slices * times[best] < 1:
        yield (
            f"The whole model in turn beats slices here: {made.key_of(int(numbers[best]))} gives"
            f" {rate_text(1 / float(times[best]))} frames/s by the cost model, the fastest slices"
            f" {rate_text(slices)}. Each of them holds all weights; --turns searches such mappings,"
            " too."
        )


GIGABIT = Link(1000.0, 0.2)
"""Between copies of a board whose platform file has no default link."""


def copies(platform: Platform, like: str, count: int) -> Platform:
    """Return a platform of so many boards like one of another platform.

    The first copy has the board's own name, so measurements of it stand for all.

    Raises:
        RankSliceError: the platform has no such board.
    """
    boards = {board.name: board for board in platform.boards}
    name = like or platform.boards[0].name
    if name not in boards:
        expected = nearest(name, boards) or f"it has {', '.join(boards)}"
        raise RankSliceError(Mistake("--like", f"no board {name!r} in {platform.name}", expected))
    board = boards[name]
    others = (f"{name}-{number}" for number in range(2, count + 1))
    return Platform(
        f"{count} boards like {name}",
        (board, *(replace(board, name=other, host=other) for other in others)),
        platform.default_link or GIGABIT,
    )


def scaling(
    platform: Platform,
    problem_on: Callable[[Platform], Problem],
    options: SearchOptions,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> tuple[ScalingPoint, ...]:
    """Return the fastest mapping for each number of boards that the options name, if they do.

    Numbers on which no mapping can run, for want of memory, are left out.
    """
    if options.scaling is None:
        return ()
    first, last = options.scaling
    wanted = replace(options, objectives=("throughput",), evaluate="model", keep=1)
    points = []
    for number in range(first, last + 1):
        on_progress("numbers of boards", number - first, last - first + 1)
        problem = problem_on(copies(platform, options.like, number))
        fastest = find_mappings(problem, ("throughput",), wanted).candidates[:1]
        points += [ScalingPoint(number, candidate) for candidate in fastest]
    on_progress("numbers of boards", last - first + 1, last - first + 1)
    return tuple(points)
