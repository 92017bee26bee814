"""A lower bound of the bottleneck, and most often a plan that reaches it, within milliseconds.

With equal links, and spans that take no less time or memory than the spans inside them, whoever has
got further with the same devices is never worse off. So it is enough to know, for each number
of devices of each type, the furthest cut that they reach within a limit; the smallest limit with
which some reach the end is the optimum. Other chains are *relaxed* to that: each message takes the
fastest link there is, and from a cut a device reaches whatever it reaches from an earlier one. What
comes out then is a bound, and whether the plan reaches it is seen by looking at the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import Chain, Flags, Floats
from rankslice.exploration.planner.plans import Placed, bottleneck_s

__all__ = ["MOST_COUNTS", "Furthest", "furthest"]

MOST_COUNTS = 1 << 18
"""Most combinations of numbers of devices that are looked at."""

_HALVINGS = 12
"""Steps of halving the interval before single values are looked at."""

_ROUNDING = 4 * np.finfo(np.float64).eps
"""What a difference of two running sums may be off, as a share of the larger one."""

Cuts = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Furthest:
    """What the relaxed chain tells."""

    bound_s: float
    """No plan has a smaller bottleneck. Infinite: there is no plan."""
    plan: tuple[Placed, ...]
    """The best plan of the relaxed chain that is one of the real chain, too; empty: none is."""
    value_s: float
    """Its bottleneck in the real chain; infinite if there is none."""


def furthest(chain: Chain) -> Furthest | None:
    """Return bound and plan of the relaxed chain; None if there are too many combinations."""
    counts = _counts(chain)
    if math.prod(count + 1 for count in counts) > MOST_COUNTS:
        return None
    return _Search(chain, counts).run()


def _counts(chain: Chain) -> list[int]:
    return [chain.type_of.count(index) for index in range(len(chain.types))]


@dataclass(frozen=True, slots=True)
class _Level:
    """The combinations of equally many devices."""

    members: Cuts
    """Their numbers."""
    moves: tuple[tuple[Cuts, Cuts], ...]
    """By type of the last device: places in ``members``, and the combinations without it."""


def _levels(shape: list[int], strides: list[int]) -> tuple[_Level, ...]:
    """Return all combinations of numbers of devices but none at all, by the sum of the numbers."""
    grid = np.indices(shape).reshape(len(shape), -1)
    total = grid.sum(axis=0)
    order = np.argsort(total, kind="stable")
    edges = np.searchsorted(total[order], np.arange(total[-1] + 2))
    return tuple(_level(order[begin:end], grid, strides) for begin, end in pairwise(edges[1:]))


def _level(members: Cuts, grid: Cuts, strides: list[int]) -> _Level:
    moves = []
    for count, stride in zip(grid, strides, strict=True):
        places = np.flatnonzero(count[members])
        moves.append((places, members[places] - stride))
    return _Level(members, tuple(moves))


class _Search:
    """Tries limits of the bottleneck, each by looking how far the devices get."""

    def __init__(self, chain: Chain, counts: list[int]) -> None:
        self.chain = chain
        self.shape = [count + 1 for count in counts]
        self.strides = [math.prod(self.shape[index + 1 :]) for index in range(len(counts))]
        self.size = math.prod(self.shape)
        self.levels = _levels(self.shape, self.strides)
        self.sent_s = [_fastest(chain, index, chain.link_of) for index in range(len(counts))]
        self.received_s = [_fastest(chain, index, chain.link_of.T) for index in range(len(counts))]
        summed = chain.spans_s is None and chain.memory_bytes.ndim == 2
        make = _Summed if summed else _Tabled
        self.reaches: tuple[_Summed | _Tabled, ...] = tuple(
            make(chain, index) for index in range(len(chain.types))
        )

        self.best: tuple[Placed, ...] = ()
        self.best_s = math.inf

    def run(self) -> Furthest:
        """Return the smallest limit that is enough, and the best real plan met on the way."""
        if not self.is_enough(math.inf):
            return Furthest(math.inf, (), math.inf)
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
        return Furthest(bound, self.best, self.best_s)

    def most(self) -> float:
        """Return a limit that is as good as none."""
        messages = np.concatenate([*self.sent_s, *self.received_s])
        longest = max(reach.longest_s for reach in self.reaches)
        return max(longest, float(messages[np.isfinite(messages)].max()))

    def values(self, low: float, high: float) -> Floats:
        """Return the times in between that a limit can be: others change nothing."""
        found = [reach.values(low, high) for reach in self.reaches]
        values = np.unique(np.concatenate([*found, *self.sent_s, *self.received_s]))
        return values[(values > low) & (values < high)]

    def is_enough(self, limit: float) -> bool:
        """Return whether the relaxed chain has a plan within a limit; keep it if it is real."""
        reached_from = [
            reach.furthest(limit, _allowed(sent, limit), _allowed(received, limit))
            for reach, sent, received in zip(
                self.reaches, self.sent_s, self.received_s, strict=True
            )
        ]
        reached = np.zeros(self.size, np.intp)
        for level in self.levels:
            best = np.zeros(level.members.size, np.intp)
            for reach, (places, before) in zip(reached_from, level.moves, strict=True):
                best[places] = np.maximum(best[places], reach[reached[before]])
            reached[level.members] = best
            goal = int(best.argmax())
            if best[goal] == self.chain.layers:
                self._keep(self._placed(int(level.members[goal]), reached, reached_from))
                return True
        return False

    def _keep(self, plan: tuple[Placed, ...]) -> None:
        value = bottleneck_s(self.chain, plan)
        if value < self.best_s:
            self.best, self.best_s = plan, value

    def _placed(self, goal: int, reached: Cuts, reached_from: list[Cuts]) -> tuple[Placed, ...]:
        """Return the stages that led to a combination of devices, on devices of those types."""
        of_type: dict[int, list[int]] = {}
        for device, index in enumerate(self.chain.type_of):
            of_type.setdefault(index, []).append(device)
        stages = []
        for index, begin, end in self._steps(goal, reached, reached_from):
            if begin < end:
                stages.append(Placed(of_type[index].pop(), begin, end))
        return tuple(reversed(stages))

    def _steps(
        self, goal: int, reached: Cuts, reached_from: list[Cuts]
    ) -> Iterator[tuple[int, int, int]]:
        """Yield type, first and last cut of the stages, from the last stage on."""
        while reached[goal]:
            for index, reach in enumerate(reached_from):
                source = goal - self.strides[index]
                if self._has(goal, index) and reach[reached[source]] == reached[goal]:
                    yield index, int(reached[source]), int(reached[goal])
                    goal = source
                    break

    def _has(self, combination: int, index: int) -> bool:
        """Return whether a combination has a device of a type."""
        return combination // self.strides[index] % self.shape[index] > 0


def _fastest(chain: Chain, index: int, link_of: Cuts) -> Floats:
    """Return the least time of messages of a type's devices at each cut: row to column."""
    is_type = np.array(chain.type_of) == index
    others = ~np.eye(is_type.size, dtype=np.bool_)
    links = np.unique(link_of[is_type[:, None] & others])
    times: Floats = chain.link_s[links].min(axis=0, initial=np.inf)
    times[[0, -1]] = 0.0
    return times


def _allowed(message_s: Floats, limit: float) -> Flags:
    return (message_s <= limit) & np.isfinite(message_s)


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

    def furthest(self, limit: float, sends: Flags, receives: Flags) -> Cuts:
        """Return for each cut the furthest one that a device reaches, from there or before."""
        reached = self.most
        if math.isfinite(limit):
            ends = np.searchsorted(self.sums, self.sums + (limit + self.slack), "right")
            reached = np.minimum(ends - 1, self.most)
        last_sent = np.maximum.accumulate(np.where(sends, self.cuts, 0))
        reached = np.where(receives, last_sent[reached], 0)
        return np.maximum(np.maximum.accumulate(reached), self.cuts)

    def values(self, low: float, high: float) -> Floats:
        """Return the times of spans between two limits."""
        begin = np.searchsorted(self.sums, self.sums + (low - self.slack), "left")
        end = np.searchsorted(self.sums, self.sums + (high + self.slack), "right")
        end = np.maximum(np.minimum(end, self.most + 1), begin)
        sizes = end - begin
        starts = np.repeat(np.arange(begin.size), sizes)
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        values: Floats = self.sums[begin[starts] + offsets] - self.sums[starts]
        return values


def _held(chain: Chain, kind: int, memory: float) -> Cuts:
    """Return for each cut the furthest one up to which a stage may fit into a memory."""
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

    def furthest(self, limit: float, sends: Flags, receives: Flags) -> Cuts:
        """Return for each cut the furthest one that a device reaches, from there or before."""
        cuts = np.arange(self.spans.shape[0])
        allowed = (self.spans <= limit) & np.isfinite(self.spans) & sends & receives[:, None]
        backwards = allowed[:, ::-1].argmax(axis=1)
        reached = np.where(allowed.any(axis=1), cuts[-1] - backwards, 0)
        return np.maximum(np.maximum.accumulate(reached), cuts)

    def values(self, low: float, high: float) -> Floats:
        """Return the times of spans between two limits."""
        values: Floats = self.spans[(self.spans > low) & (self.spans < high)]
        return values
