"""Trials: mappings that are simulated or run when a search asks for their scores.

A trial takes long. So mappings that cannot run by the cost model are not tried, each mapping is
tried once at most, and the number of trials is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate, Failure, predicted_candidate
from rankslice.exploration.results.front import Population, Scores
from rankslice.exploration.search.space import scorer
from rankslice.framework.errors import InterruptedRunError, RankSliceError

_IMPOSSIBLE = 1.0


class Trials:
    """Scores populations by trying each of their mappings (see ``space.Score``).

    Mappings that failed count as impossible, and so do those beyond the limit.
    """

    def __init__(
        self,
        problem: Problem,
        objectives: Sequence[str],
        attempt: Callable[[Candidate], Candidate],
        most: int,
        on_trial: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Take what to try, and how.

        Args:
            attempt: returns a mapping with its figures added, or raises a
                :class:`RankSliceError`.
        """
        self._problem, self._rows = problem, [OBJECTIVES[name] for name in objectives]
        self._by_model = scorer(problem, objectives)
        self._attempt, self._most, self._on_trial = attempt, most, on_trial
        self._known: dict[bytes, Candidate | None] = {}
        self.failures: list[Failure] = []

    def __call__(self, population: Population) -> Scores:
        predicted = self._by_model(population)
        values, excess = predicted.values.copy(), predicted.excess.copy()
        for row in np.flatnonzero(excess <= 0):
            candidate = self._tried(population[row])
            if candidate is None:
                excess[row] = _IMPOSSIBLE
            else:
                costs = [objective.cost_of(candidate) for objective in self._rows]
                values[row] = np.where(np.isfinite(costs), costs, values[row])
        return Scores(values, excess, predicted.groups)

    def _tried(self, assignment: NDArray[np.int64]) -> Candidate | None:
        """Return a mapping with its figures; ``None``: it failed, or is not tried any more."""
        name = assignment.tobytes()
        if name not in self._known and not self.is_exhausted:
            self._known[name] = self._try(predicted_candidate(self._problem, assignment))
            self._on_trial(self.count)
        return self._known.get(name)

    def _try(self, candidate: Candidate) -> Candidate | None:
        tried = try_out(self._attempt, candidate)
        if isinstance(tried, Failure):
            self.failures.append(tried)
            return None
        for row in self._rows:
            if row.evaluated is None and row.value(tried, tried.best_known) is None:
                reason = f"the run did not measure {row.name}"
                self.failures.append(Failure(candidate.mapping, reason))
                return None
        return tried

    @property
    def candidates(self) -> dict[bytes, Candidate]:
        """The mappings that ran, with their figures, by the bytes of their assignments."""
        return {name: candidate for name, candidate in self._known.items() if candidate is not None}

    @property
    def count(self) -> int:
        return len(self._known)

    @property
    def is_exhausted(self) -> bool:
        return self.count >= self._most


def try_out(attempt: Callable[[Candidate], Candidate], candidate: Candidate) -> Candidate | Failure:
    """Return a mapping with its figures added, or why it did not run."""
    try:
        return attempt(candidate)
    except InterruptedRunError:
        raise KeyboardInterrupt from None
    except RankSliceError as error:
        return Failure(candidate.mapping, str(error.mistakes[0]))


def most_promising(rates: NDArray[np.float64], boards: NDArray[np.int64], most: int) -> list[int]:
    """Return which mappings to try, the most important first.

    These are the fastest of each number of boards; then others from fast to slow, spread over all.

    Args:
        boards: (mappings,), how many are in use.
    """
    order = [int(index) for index in np.argsort(-rates, kind="stable")]
    fastest: dict[int, int] = {}
    for index in order:
        fastest.setdefault(int(boards[index]), index)
    first = [index for index in order if index in fastest.values()][:most]
    others = [index for index in order if index not in first]
    count = min(most - len(first), len(others))
    spread = np.linspace(0, len(others) - 1, count).round() if count else np.empty(0)
    return [*first, *(others[int(index)] for index in spread)]
