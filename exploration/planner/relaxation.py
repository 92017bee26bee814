"""A lower bound of the bottleneck, and most often a plan that reaches it, within milliseconds.

With equal links, and spans that take no less time or memory than the spans inside them, whoever has
got further with the same devices is never worse off. So it is enough to know, for each number
of devices of each type, the furthest cut that they reach within a limit; the smallest limit with
which some reach the end is the optimum. Other chains are *relaxed* to that: each message takes the
fastest link there is, and from a cut a device reaches whatever it reaches from an earlier one. What
comes out then is a bound, and whether the plan reaches it is seen by looking at the plan.

Several devices of a type can take turns on a slice. To the relaxed chain, they are one device that
uses up several, and that may take as many times longer for its slice and its messages.

Where the combinations of numbers do not fit into memory, types that take nearly the same times are
counted as one that is as fast as the fastest of them: a bound again. The plan is then searched by
keeping, of equally many devices, only some of the most promising combinations.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import (
    Chain,
    Flags,
    Floats,
    PlacedSlice,
    limit_in_turn,
)

_MAX_BYTES = 1 << 27
"""Most memory of the tables of all combinations of numbers of devices."""

_KEPT = 400
"""Combinations of equally many devices that are kept where there are too many."""

_HALVINGS = 12
"""Steps of halving the interval before single values are looked at."""

_ROUNDING = 4 * np.finfo(np.float64).eps
"""What a difference of two running sums may be off, as a share of the larger one."""

Cuts = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Bound and plan of the relaxed chain."""

    bound_s: float
    """No plan has a smaller bottleneck. Infinite: there is no plan."""
    plan: tuple[PlacedSlice, ...]
    """The best plan of the relaxed chain that is one of the real chain, too; empty: none is."""
    value_s: float
    """Its bottleneck in the real chain; infinite if there is none."""
    is_exact: bool = True
    """Whether all combinations were looked at."""


def relax(chain: Chain) -> Relaxation:
    alone: Groups = tuple((index,) for index in range(len(chain.types)))
    if _bytes_of(chain, alone) <= _MAX_BYTES:
        return _AllCombinations(chain, alone).run()
    coarse = _AllCombinations(chain, _merged(chain, alone)).run()
    if math.isinf(coarse.bound_s):
        return coarse
    better = min(coarse, _PromisingCombinations(chain, alone).run(), key=lambda one: one.value_s)
    return Relaxation(coarse.bound_s, better.plan, better.value_s, is_exact=False)


Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Types of devices that are counted as one."""


def _counts(chain: Chain, groups: Groups) -> list[int]:
    return [sum(map(chain.type_of.count, group)) for group in groups]


def _turns(chain: Chain, groups: Groups) -> list[int]:
    return [max(chain.turns[index] for index in group) for group in groups]


def _bytes_of(chain: Chain, groups: Groups) -> int:
    combinations = math.prod(count + 1 for count in _counts(chain, groups))
    return combinations * 8 * (1 + 2 * len(groups) + sum(_turns(chain, groups)))


def _merged(chain: Chain, groups: Groups) -> Groups:
    """Return so few groups that the tables fit: those joined first whose times differ least."""
    times = np.array([chain.times_s[kind] for kind, _, _ in chain.types])
    speeds = 1 / np.maximum(np.median(np.where(np.isfinite(times), times, 0.0), axis=1), 1e-300)
    groups = tuple(sorted(groups, key=lambda group: float(speeds[group[0]])))
    while len(groups) > 1 and _bytes_of(chain, groups) > _MAX_BYTES:
        # How much work the slower ones of two neighbours seem to do on top when they are joined.
        more = [
            sum(chain.type_of.count(one) for one in slow)
            * (1 - speeds[slow[-1]] / speeds[fast[-1]])
            for slow, fast in pairwise(groups)
        ]
        at = int(np.argmin(more))
        groups = (*groups[:at], groups[at] + groups[at + 1], *groups[at + 2 :])
    return groups


@dataclass(frozen=True, slots=True)
class _Move:
    group: int
    turns: int


def _levels(
    shape: list[int], strides: list[int], moves: tuple[_Move, ...]
) -> tuple[tuple[Cuts, Cuts], ...]:
    """Return all combinations of numbers of devices but none at all, by the sum of the numbers.

    Of each sum: the numbers of its combinations; and by move, (moves, members), those without the
    last slice's devices, or one number more than there are if there are not so many devices.
    """
    grid = np.indices(shape).reshape(len(shape), -1)
    total = grid.sum(axis=0)
    order = np.argsort(total, kind="stable")
    edges = np.searchsorted(total[order], np.arange(total[-1] + 2))
    groups = [move.group for move in moves]
    taken = np.array([move.turns for move in moves])[:, None]
    steps = taken * np.array(strides)[groups][:, None]
    levels = []
    for begin, end in pairwise(edges[1:]):
        members = order[begin:end]
        has = grid[:, members][groups] >= taken
        levels.append((members, np.where(has, members - steps, total.size)))
    return tuple(levels)


class _AllCombinations:
    """Tries limits of the bottleneck, each by looking how far the devices get."""

    def __init__(self, chain: Chain, groups: Groups) -> None:
        self.chain, self.groups = chain, groups
        self.counts = _counts(chain, groups)
        self.moves = tuple(
            _Move(group, turns)
            for group, most in enumerate(_turns(chain, groups))
            for turns in range(1, most + 1)
        )
        self.sent_s = self._loads(chain.link_of)
        self.received_s = self._loads(chain.link_of.T)
        self.in_turn = np.array([limit_in_turn(1.0, move.turns) for move in self.moves])
        self.rows = [
            (index, self._rows(group, index))
            for group, members in enumerate(groups)
            for index in members
        ]
        self.starts = (chain.cuts + 1) * np.arange(len(self.moves))[:, None]
        summed = chain.spans_s is None and chain.memory_bytes.ndim == 2
        make = _Summed if summed else _Tabled
        self.reaches: tuple[_Summed | _Tabled, ...] = tuple(
            make(chain, index) for index in range(len(chain.types))
        )
        self.best: tuple[PlacedSlice, ...] = ()
        self.best_s = math.inf
        self.prepare()

    def _rows(self, group: int, index: int) -> slice:
        first = self.moves.index(_Move(group, 1))
        return slice(first, first + self.chain.turns[index])

    def _loads(self, link_of: Cuts) -> Floats:
        """Return how long a device sends per frame at each cut, at least, (moves, cuts)."""
        times = [_fastest(self.chain, group, link_of) for group in self.groups]
        return np.array([times[move.group] / move.turns for move in self.moves])

    def prepare(self) -> None:
        self.shape = [count + 1 for count in self.counts]
        self.strides = [math.prod(self.shape[index + 1 :]) for index in range(len(self.counts))]
        self.size = math.prod(self.shape)
        self.levels = _levels(self.shape, self.strides, self.moves)

    def run(self) -> Relaxation:
        """Return the smallest limit that is enough, and the best real plan met on the way."""
        if not self.is_enough(math.inf):
            return Relaxation(math.inf, (), math.inf)
        if self.is_enough(0.0):
            return Relaxation(0.0, self.best, self.best_s)
        low, high = 0.0, min(self.best_s, self.most())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self.is_enough(middle):
                high = min(middle, self.best_s)
            else:
                low = middle
        values = self.values(low, high)
        while values.size:
            middle = float(np.partition(values, values.size // 2)[values.size // 2])
            if self.is_enough(middle):
                high = min(middle, self.best_s)
                values = values[values < high]
            else:
                values = values[values > middle]
        slack = max(reach.slack for reach in self.reaches)
        bound = max(0.0, high * (1 - _ROUNDING) - slack)
        return Relaxation(bound, self.best, self.best_s)

    def most(self) -> float:
        messages = np.concatenate([self.sent_s, self.received_s])
        longest = max(reach.longest_s for reach in self.reaches)
        return max(longest, float(messages[np.isfinite(messages)].max()))

    def values(self, low: float, high: float) -> Floats:
        parts = [self.sent_s.ravel(), self.received_s.ravel()]
        for move in self.moves:
            within = low * move.turns * (1 - _ROUNDING), high * move.turns * (1 + _ROUNDING)
            for index in self.groups[move.group]:
                parts.append(self.reaches[index].values(*within) / move.turns)
        values = np.unique(np.concatenate(parts))
        return values[(values > low) & (values < high)]

    def is_enough(self, limit: float) -> bool:
        """Return whether the relaxed chain has a plan within a limit; keep it if it is real."""
        reached_from = self.reached_from(limit)
        reached = np.zeros(self.size + 1, np.intp)
        reached[-1] = self.chain.cuts
        for members, before in self.levels:
            best = np.maximum.reduce(reached_from.take(self.starts + reached[before]))
            reached[members] = best
            goal = int(best.argmax())
            if best[goal] == self.chain.layers:
                self.keep(self.placed(self._steps(int(members[goal]), reached, reached_from)))
                return True
        return False

    def reached_from(self, limit: float) -> Cuts:
        """Return for each move the furthest cut that it reaches from each cut, (moves, cuts + 1).

        The last column stands for a place from which nothing is reached.
        """
        most = min(limit, sys.float_info.max)
        sends, receives = self.sent_s <= most, self.received_s <= most
        limits = limit * self.in_turn
        reached = np.zeros((len(self.moves), self.chain.cuts + 1), np.intp)
        for index, rows in self.rows:
            furthest = self.reaches[index].furthest(limits[rows], sends[rows], receives[rows])
            np.maximum(reached[rows, :-1], furthest, out=reached[rows, :-1])
        return reached

    def keep(self, plan: tuple[PlacedSlice, ...]) -> None:
        value = self.chain.bottleneck_s(plan) if plan else math.inf
        if value < self.best_s:
            self.best, self.best_s = plan, value

    def placed(self, steps: Iterable[tuple[_Move, int, int]]) -> tuple[PlacedSlice, ...]:
        """Return slices on devices of some groups; nothing, if a group has too few of one type.

        Args:
            steps: move, first and last cut of each slice, from the last slice on.
        """
        of_group = [
            [device for device, index in enumerate(self.chain.type_of) if index in group]
            for group in self.groups
        ]
        slices = []
        for move, begin, end in steps:
            if begin < end:
                taken = self._take(of_group[move.group], move.turns)
                slices.append(PlacedSlice(taken, begin, end))
        return tuple(reversed(slices)) if all(part.devices for part in slices) else ()

    def _take(self, free: list[int], turns: int) -> tuple[int, ...]:
        if turns == 1 and free:
            return (free.pop(),)
        types = [self.chain.type_of[device] for device in free]
        one = next((index for index in reversed(types) if types.count(index) >= turns), None)
        alike = [device for device, index in zip(free, types, strict=True) if index == one]
        taken = tuple(alike[-turns:])
        free[:] = [device for device in free if device not in taken]
        return taken

    def _steps(
        self, goal: int, reached: Cuts, reached_from: Cuts
    ) -> Iterator[tuple[_Move, int, int]]:
        while reached[goal]:
            for move, reach in zip(self.moves, reached_from, strict=True):
                source = goal - move.turns * self.strides[move.group]
                if self._has(goal, move) and reach[reached[source]] == reached[goal]:
                    yield move, int(reached[source]), int(reached[goal])
                    goal = source
                    break

    def _has(self, combination: int, move: _Move) -> bool:
        count = combination // self.strides[move.group] % self.shape[move.group]
        return count >= move.turns


@dataclass(frozen=True, slots=True)
class _Kept:
    """Combinations of equally many devices."""

    used: Cuts
    """(combinations, groups): numbers of devices."""
    reached: Cuts
    """(combinations,)"""
    move: Cuts
    """(combinations,): the last one."""
    before: Cuts
    """(combinations,): without that: which one of the combinations of fewer devices."""


class _PromisingCombinations(_AllCombinations):
    """Looks at some combinations of equally many devices only: there may be better plans."""

    def prepare(self) -> None:
        """Weigh layers by the mean time of all devices, and number combinations at random."""
        times = np.array([self.chain.times_s[kind] for kind, _, _ in self.chain.types])
        work = np.where(np.isfinite(times), times, 0.0).mean(axis=0)
        self.work = np.concatenate([[0.0], np.cumsum(work)])
        self.numbers = np.random.default_rng(0).integers(1 << 62, size=len(self.counts))

    def is_enough(self, limit: float) -> bool:
        reached_from = self.reached_from(limit)
        alone = [move.turns == 1 for move in self.moves]
        does = np.mean(self.work[reached_from[alone, :-1]] - self.work, axis=1)
        nothing = np.zeros(1, np.intp)
        kept = [_Kept(np.zeros((1, len(self.counts)), np.intp), nothing, nothing, nothing)]
        most = max(move.turns for move in self.moves)
        while any(combinations.reached.size for combinations in kept[-most:]):
            kept.append(self._next(kept, reached_from, does))
            reached = kept[-1].reached
            if reached.max(initial=0) == self.chain.layers:
                self.keep(self.placed(self._steps_to(kept, int(reached.argmax()))))
                return True
        return False

    def _next(self, kept: list[_Kept], reached_from: Cuts, does: Floats) -> _Kept:
        """Return the combinations of one more device that promise most."""
        made = []
        for index, (move, reach) in enumerate(zip(self.moves, reached_from, strict=True)):
            if move.turns > len(kept):
                continue
            last = kept[-move.turns]
            free = np.flatnonzero(last.used[:, move.group] <= self.counts[move.group] - move.turns)
            free = free[reach[last.reached[free]] > last.reached[free]]
            used = last.used[free]
            used[:, move.group] += move.turns
            made.append(_Kept(used, reach[last.reached[free]], np.full(free.size, index), free))
        used, reached, moves, before = (
            np.concatenate([getattr(one, name) for one in made])
            for name in ("used", "reached", "move", "before")
        )
        # Of each combination the furthest one, then those that do most with the least devices.
        order = np.lexsort((-reached, used @ self.numbers))
        first = np.ones(order.size, np.bool_)
        first[1:] = np.diff(used[order] @ self.numbers) != 0
        order = order[first]
        promise = self.work[reached[order]] - used[order] @ does
        best = order[np.argsort(-promise, kind="stable")[:_KEPT]]
        return _Kept(used[best], reached[best], moves[best], before[best])

    def _steps_to(self, kept: list[_Kept], goal: int) -> Iterator[tuple[_Move, int, int]]:
        number = len(kept) - 1
        while number:
            move = self.moves[int(kept[number].move[goal])]
            before = kept[number - move.turns]
            source = int(kept[number].before[goal])
            yield move, int(before.reached[source]), int(kept[number].reached[goal])
            number, goal = number - move.turns, source


def _fastest(chain: Chain, group: tuple[int, ...], link_of: Cuts) -> Floats:
    """Return the least time of messages of a group's devices at each cut: row to column."""
    is_type = np.isin(chain.type_of, group)
    others = ~np.eye(is_type.size, dtype=np.bool_)
    links = np.unique(link_of[is_type[:, None] & others])
    times: Floats = chain.link_s[links].min(axis=0, initial=np.inf)
    times[[0, -1]] = 0.0
    return times


class _Summed:
    """How far devices of one type get where times and memory are sums over layers."""

    def __init__(self, chain: Chain, index: int) -> None:
        kind, memory, _ = chain.types[index]
        times = chain.times_s[kind]
        known = np.isfinite(times)
        self.sums = np.concatenate([[0.0], np.cumsum(np.where(known, times, 0.0))])
        self.longest_s = float(self.sums[-1])
        self.slack = _ROUNDING * self.longest_s
        self.cuts = np.arange(chain.cuts)
        walls = np.where(np.append(known, False), chain.layers, self.cuts)
        self.most = np.minimum.accumulate(walls[::-1])[::-1]
        if math.isfinite(memory):
            self.most = np.minimum(self.most, _held(chain, kind, memory))

    def furthest(self, limits: Floats, sends: Flags, receives: Flags) -> Cuts:
        """Return for each cut the furthest one that a device reaches, from there or before.

        All are by limit: (limits,) and (limits, cuts).
        """
        ends = np.searchsorted(self.sums, self.sums + (limits[:, None] + self.slack), "right")
        reached = np.minimum(ends - 1, self.most)
        last_sent = np.maximum.accumulate(np.where(sends, self.cuts, 0), axis=1)
        row = self.cuts.size * np.arange(limits.size)[:, None]
        reached = np.where(receives, last_sent.take(row + reached), 0)
        return np.maximum(np.maximum.accumulate(reached, axis=1), self.cuts)

    def values(self, low: float, high: float) -> Floats:
        begin = np.searchsorted(self.sums, self.sums + (low - self.slack), "left")
        end = np.searchsorted(self.sums, self.sums + (high + self.slack), "right")
        end = np.maximum(np.minimum(end, self.most + 1), begin)
        sizes = end - begin
        starts = np.repeat(np.arange(begin.size), sizes)
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        values: Floats = self.sums[begin[starts] + offsets] - self.sums[starts]
        return values


def _held(chain: Chain, kind: int, memory: float) -> Cuts:
    """Return for each cut the furthest one up to which a slice may fit into a memory."""
    sums = np.concatenate([[0.0], np.cumsum(chain.memory_bytes[kind])])
    least = float(chain.send_bytes.min())
    room = memory - np.append(chain.receive_bytes, 0.0) - least + _ROUNDING * float(sums[-1])
    return np.maximum(np.searchsorted(sums, sums + room, "right") - 1, 0)


class _Tabled:
    """How far devices of one type get where each span has its own time or memory."""

    def __init__(self, chain: Chain, index: int) -> None:
        self.spans = np.where(chain.fits[index], chain.span_s[index], np.inf)
        self.longest_s = float(self.spans.max(initial=0.0, where=chain.fits[index]))
        self.slack = 0.0

    def furthest(self, limits: Floats, sends: Flags, receives: Flags) -> Cuts:
        """Return for each cut the furthest one that a device reaches, from there or before.

        All are by limit: (limits,) and (limits, cuts).
        """
        return np.stack(
            [self._furthest(*at_limit) for at_limit in zip(limits, sends, receives, strict=True)]
        )

    def _furthest(self, limit: float, sends: Flags, receives: Flags) -> Cuts:
        cuts = np.arange(self.spans.shape[0])
        allowed = (self.spans <= limit) & np.isfinite(self.spans) & sends & receives[:, None]
        backwards = allowed[:, ::-1].argmax(axis=1)
        reached = np.where(allowed.any(axis=1), cuts[-1] - backwards, 0)
        return np.maximum(np.maximum.accumulate(reached), cuts)

    def values(self, low: float, high: float) -> Floats:
        values: Floats = self.spans[(self.spans > low) & (self.spans < high)]
        return values
