"""NSGA-II of pymoo, told how mappings are crossed, mutated and scored.

This imports pymoo, which takes long and may not be installed: import this module in functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.problem import Problem
from pymoo.core.repair import Repair
from pymoo.termination import get_termination

from rankslice.exploration.results.front import Population
from rankslice.exploration.search.search_options import GeneticOptions
from rankslice.exploration.search.space import Score, SearchSpace
from rankslice.exploration.search.variation import fresh_children, mutated, swap_stretches


def nsga2_algorithm(
    score: Score, space: SearchSpace, options: GeneticOptions, first: Population
) -> Any:
    """Return pymoo's NSGA-II, ready to run from a first population, (mappings, layers)."""
    algorithm = NSGA2(
        pop_size=options.population,
        sampling=first,
        crossover=_SwapStretches(2, 2, prob=options.crossover),
        mutation=_Mutate(prob=options.mutation),
        repair=_MutateKnown(),
        output=None,
    )
    ending = get_termination("n_gen", options.generations)
    return algorithm.setup(_Mappings(score, space), termination=ending, seed=options.seed)


class _Mappings(Problem):  # type: ignore[misc, unused-ignore]
    def __init__(self, score: Score, space: SearchSpace) -> None:
        super().__init__(
            n_var=space.layers,
            n_obj=space.objectives,
            n_ieq_constr=1,
            xl=0,
            xu=space.devices - 1,
            vtype=int,
        )
        self._score, self.devices = score, space.devices

    def _evaluate(self, x: Any, out: Any, *_: Any, **__: Any) -> None:
        scores = self._score(x)
        out["F"] = np.where(scores.excess[:, None] <= 0, scores.values, 0.0)
        out["G"] = scores.excess[:, None]


class _SwapStretches(Crossover):  # type: ignore[misc, unused-ignore]
    def _do(self, problem: Any, x: Any, *_: Any, random_state: Any, **__: Any) -> Any:
        return swap_stretches(x, random_state)


class _Mutate(Mutation):  # type: ignore[misc, unused-ignore]
    def _do(self, problem: Any, x: Any, *_: Any, random_state: Any, **__: Any) -> Any:
        return mutated(x, problem.devices, random_state)


class _MutateKnown(Repair):  # type: ignore[misc, unused-ignore]
    def _do(self, problem: Any, x: Any, algorithm: Any, random_state: Any, **_: Any) -> Any:
        there = () if algorithm.pop is None else algorithm.pop.get("X")
        return fresh_children(x, there, problem.devices, random_state)
