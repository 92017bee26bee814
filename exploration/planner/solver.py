"""From a chain to its best plan: bounds first, then exact search where they leave a gap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rankslice.exploration.planner.branch_and_bound import (
    Costs,
    Walk,
    completion_costs,
    completions,
)
from rankslice.exploration.planner.chain import Chain, Floats, PlacedSlice
from rankslice.exploration.planner.relaxation import Relaxation, relax
from rankslice.exploration.planner.state_graph import StateGraph, state_graph

SAME = 1e-12
"""Relative difference below which two times are the same but for rounding."""

_SHARES = (0.0, 0.4, 0.8, 1.2)
"""Powers of speed by which memory is dealt out: 0 gives equal shares."""

_MAX_STATES = 1e5
"""Most states of a graph: making it takes seconds."""

_MAX_VALUES = 6e7
"""Most states x cuts of a graph: one byte each."""

_MAX_PRODUCTS = 6e10
"""Most states x cuts x cuts of a graph: deciding about one limit then takes a second or two."""

_MAX_SUMS = 6e9
"""The same where costs are added up, which takes longer."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan that was found."""

    plan: tuple[PlacedSlice, ...]
    """Empty: none was found."""
    value: float
    """Its bottleneck or its cost; infinite if there is none."""
    bound: float
    """No plan has less."""
    proven: bool
    """Whether the value is the least, or that there is no plan."""


_NONE = Solution((), math.inf, math.inf, True)


def is_feasible(chain: Chain) -> bool:
    alone = replace(chain, most_turns=1)  # whoever takes turns can do without
    return bool(completions(alone, _graph(alone, _MAX_PRODUCTS), math.inf)[0, 0])


def fastest(chain: Chain, most_steps: int) -> Solution:
    if _overflows(chain):
        return _NONE
    quick = relax(chain)
    if math.isinf(quick.bound_s):
        return _NONE
    if quick.value_s <= quick.bound_s * (1 + SAME):
        return Solution(quick.plan, quick.value_s, quick.value_s, True)
    plan, value = _apart(chain, quick) if chain.shares_memory else (quick.plan, quick.value_s)
    if value <= quick.bound_s * (1 + SAME):
        return Solution(plan, value, value, True)
    if max(chain.turns) > 1:
        alone = fastest(replace(chain, most_turns=1), most_steps)
        if alone.proven and not alone.plan:
            return _NONE  # whoever takes turns can do without
        if alone.value < value:
            plan, value = alone.plan, alone.value
    known = Solution(plan, value, quick.bound_s, False)
    if plan and not quick.is_exact:
        return known  # what is left of such chains is too much for a search of states, too
    return _Fastest(chain, most_steps, known).run()


def _apart(chain: Chain, quick: Relaxation) -> tuple[tuple[PlacedSlice, ...], float]:
    """Return the best plan so far, and its bottleneck, of those with memory dealt out to devices.

    Each gets a share of its board's memory: equal ones, or the more the faster it is.
    """
    times = np.array([chain.times_s[device.kind] for device in chain.devices])
    known = np.where(np.isfinite(times), times, 0.0)
    speeds = 1 / np.maximum(known.mean(axis=1), 1e-300)
    best, best_s = quick.plan, quick.value_s
    for power in _SHARES:
        weights = np.maximum(speeds / speeds.max(), 1e-9) ** power
        sums = np.bincount(chain.board_of, weights)[list(chain.board_of)]
        memory = np.array(chain.capacity_bytes)[list(chain.board_of)]
        dealt = replace(
            chain,
            board_of=tuple(range(len(chain.devices))),
            capacity_bytes=tuple((memory * (weights / sums)).tolist()),
        )
        plan = relax(dealt).plan
        if plan and (value := chain.bottleneck_s(plan)) < best_s:
            best, best_s = plan, value
    return best, best_s


def _overflows(chain: Chain) -> bool:
    if chain.memory_bytes.ndim > 2:
        return False
    kinds = [kind for kind, _, _ in chain.types]
    least = float(chain.memory_bytes[kinds].min(axis=0).sum())
    return least * (1 - SAME) > sum(chain.capacity_bytes)


def _graph(chain: Chain, most_products: float) -> StateGraph:
    most = min(_MAX_STATES, _MAX_VALUES / chain.cuts, most_products / chain.cuts**2)
    return state_graph(chain, int(most))


class _Fastest:
    """Looks for the least limit of the bottleneck with which there is a plan."""

    def __init__(self, chain: Chain, most_steps: int, known: Solution) -> None:
        self.chain = chain
        self.graph = _graph(chain, _MAX_PRODUCTS)
        self.best = known
        self.left = most_steps
        self.most_per_walk = max(1, most_steps // 10)

    def run(self) -> Solution:
        bound = self._least_limit()
        if math.isinf(bound):
            return _NONE
        if bound >= self.best.value:
            return Solution(self.best.plan, self.best.value, self.best.value, True)
        return self._walk_up(bound)

    def _least_limit(self) -> float:
        """Return the least limit with which the graph has a plan; its devices may not."""
        if math.isinf(self.best.value) and not self._can(math.inf):
            return math.inf
        least, values = self.best.value, self._values(self.best.bound, self.best.value)
        while values.size:
            middle = _median(values)
            if self._can(middle):
                least, values = middle, values[values < middle]
            else:
                values = values[values > middle]
        return least

    def _can(self, limit: float) -> bool:
        return bool(completions(self.chain, self.graph, limit)[0, 0])

    def _values(self, low: float, high: float) -> Floats:
        """Return the values that a bottleneck can have, from ``low`` to less than ``high``."""
        chain = self.chain
        low *= 1 - SAME
        parts = []
        for table, fits, most in zip(chain.span_s, chain.fits, chain.turns, strict=True):
            known = table[fits & (table >= low) & (table < high * most)]
            parts += [known / turns for turns in range(1, most + 1)]
        links = chain.link_s[np.unique(chain.link_of)].ravel()
        parts += [links / turns for turns in range(1, max(chain.turns) + 1)]
        values = np.concatenate(parts)
        return values[(values >= low) & (values < high)]

    def _walk_up(self, bound: float) -> Solution:
        """Return the best plan of real devices; none is better than the bound."""
        values = self._values(bound, self.best.value)
        values = np.append(values[values > bound], bound)
        proven, middle = True, bound
        while values.size:
            known = self._try(middle)
            proven = proven and known
            if self.best.value <= middle:
                values = values[values < min(middle, self.best.value)]
            else:
                values = values[values > middle]
                bound = max(bound, middle) if proven else bound
            middle = _median(values) if values.size else middle
        if proven and not self.graph.roles.exact:
            return self._walk_down(bound)
        value = self.best.value
        return Solution(self.best.plan, value, value if proven else bound, proven)

    def _walk_down(self, bound: float) -> Solution:
        """Return the best plan of real devices, starting from the best so far.

        Where devices take turns over different links, loads are sums that no list of values has.
        """
        proven = False
        while not proven and bound < self.best.value:
            before = self.best.value
            certain = self._try(before * (1 - SAME))
            if self.best.value == before:
                proven = certain
                break
        value = self.best.value
        return Solution(self.best.plan, value, value if proven else bound, proven or value <= bound)

    def _try(self, limit: float) -> bool:
        """Look for a plan within a limit; return whether the answer is certain."""
        least = np.where(completions(self.chain, self.graph, limit), 0.0, np.inf)
        nothing = (0.0,) * len(self.chain.devices)
        costs = Costs(self.chain, nothing, 0.0, limit, (0.0,) * len(self.chain.boards))
        granted = min(self.left, self.most_per_walk)
        walk = Walk(self.chain, self.graph, costs, least, granted)
        certain = walk.run()
        self.left -= granted - walk.steps
        if walk.plan is not None:
            value = self.chain.bottleneck_s(walk.plan)
            if value < self.best.value:
                self.best = Solution(walk.plan, value, 0.0, False)
            return True
        return certain


def _median(values: Floats) -> float:
    middle = values.size // 2
    return float(np.partition(values, middle)[middle])


def cheapest(chain: Chain, costs: Costs, most_steps: int) -> Solution:
    if _overflows(chain):
        return _NONE
    graph = _graph(chain, _MAX_SUMS)
    least = completion_costs(chain, graph, costs)
    bound = float(least[0, 0])
    if math.isinf(bound):
        return _NONE
    walk = Walk(chain, graph, costs, least, most_steps)
    if max(chain.turns) > 1:
        single = replace(chain, most_turns=1)
        alone = cheapest(single, replace(costs, chain=single), most_steps)
        walk.best, walk.plan = alone.value, alone.plan or None
    certain = walk.run()
    if walk.plan is None:
        return _NONE if certain else Solution((), math.inf, bound, False)
    return Solution(walk.plan, walk.best, walk.best if certain else bound, certain)
