"""Exact search: what completing a plan costs from each state, then a walk through real devices.

First, backwards through the graph of :mod:`rankslice.exploration.planner.state_graph`: for each
state and cut, whether the layers behind the cut can be placed within a limit, or what that costs at
least.
Then forwards, device by device, always to where completing costs least. If the graph is exact, and
no two slices share a board's memory, the first walk arrives. Otherwise it turns back where a board
is full or a link is slower than hoped, or where completing costs too much for certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import Chain, Flags, Floats
from rankslice.exploration.planner.slices import PlacedSlice
from rankslice.exploration.planner.state_graph import Grade, Move, StateGraph

_ROUNDING = 1e-13
"""Relative difference of sums of the same numbers, added up in another order, at most."""


class OutOfSteps(Exception):  # noqa: N818 - nothing went wrong
    """A walk took as many steps as it was granted."""


@dataclass(slots=True)
class Steps:
    """How many more steps a walk may take."""

    left: int

    def take(self) -> None:
        """Count one step.

        Raises:
            OutOfSteps: there are none left.
        """
        if not self.left:
            raise OutOfSteps
        self.left -= 1


@dataclass(frozen=True)
class Costs:
    """What is added up along a plan; infinite where a limit is not kept."""

    spans: tuple[Floats, ...]
    """Type -> (cuts, cuts)"""
    message: float
    """What a message costs per second of its time."""
    limit: float
    """Most time that a message may take, in s."""
    boards: tuple[float, ...]
    """Board -> what its first slice costs on top."""

    def messages(self, link_s: Floats) -> Floats:
        """Return what messages cost, of the time that they take."""
        fine = (link_s <= self.limit) & np.isfinite(link_s)
        costs = np.full_like(link_s, np.inf)
        costs[fine] = self.message * link_s[fine]
        return costs


# Backwards


def completions(chain: Chain, graph: StateGraph, limit: float) -> list[Flags]:
    """Return for each grade which cuts each state can complete the plan from, (states, cuts).

    Args:
        chain: what is to be placed.
        graph: of its devices.
        limit: most time that a slice or a message may take, in s.
    """
    roles = graph.roles
    crossed = (roles.link_s <= limit) & np.isfinite(roles.link_s)
    spans = {types: _Spans(chain, types, limit) for types in set(roles.types)}
    found: list[Flags] = []
    for grade in reversed(graph.grades):
        done = np.zeros((grade.slots.size, chain.cuts), np.bool_)
        if found:
            before = np.zeros_like(found[-1])
            for types, states in _following(graph, len(found)).of_types:
                before[states] = spans[types].begins(found[-1][states])
            _combine(np.logical_or, grade, before[grade.targets] & crossed[grade.links], done)
        done[:, -1] = True
        found.append(done)
    return found[::-1]


def _following(graph: StateGraph, done: int) -> Grade:
    """Return the grade that was completed last, of so many."""
    return graph.grades[len(graph.grades) - done]


class _Spans:
    """The spans that one of some types may compute within a limit."""

    def __init__(self, chain: Chain, types: frozenset[int], limit: float) -> None:
        allowed = np.logical_or.reduce(
            [chain.fits[index] & (chain.span_s[index] <= limit) for index in types]
        )
        self.cuts = np.arange(chain.cuts, dtype=np.int32)
        counts = allowed.sum(axis=1)
        last = self.cuts[-1] - allowed[:, ::-1].argmax(axis=1)
        gapless = (last - self.cuts == counts) | (counts == 0)
        self.furthest = np.where(gapless & (counts > 0), last, -1)[:-1]
        self.gaps = np.flatnonzero(~gapless)
        self.with_gaps = allowed[self.gaps].T.astype(np.float32)

    def begins(self, ends: Flags) -> Flags:
        """Return where spans can begin that end at one of some cuts, both (states, cuts)."""
        begins = np.zeros_like(ends)
        nearest = np.where(ends, self.cuts, self.cuts.size)
        nearest = np.minimum.accumulate(nearest[:, ::-1], axis=1)[:, ::-1]
        begins[:, :-1] = nearest[:, 1:] <= self.furthest
        if self.gaps.size:
            begins[:, self.gaps] = ends.astype(np.float32) @ self.with_gaps > 0
        return begins


def _combine(
    operation: np.ufunc, grade: Grade, values: NDArray[np.generic], into: NDArray[np.generic]
) -> None:
    """Combine what edges bring into the states that they leave."""
    if grade.sources.size:
        states, first = grade.leaving
        into[states] = operation.reduceat(values, first, axis=0)


def completion_costs(chain: Chain, graph: StateGraph, costs: Costs) -> list[Floats]:
    """Return for each grade what completing the plan costs at least, (states, cuts)."""
    roles = graph.roles
    link_costs = costs.messages(roles.link_s)
    tables = {
        types: np.minimum.reduce([costs.spans[index] for index in types])
        for types in set(roles.types)
    }
    opening = _opening(graph, costs)
    found: list[Floats] = []
    for grade in reversed(graph.grades):
        least = np.full((grade.slots.size, chain.cuts), np.inf)
        if found:
            before = np.full_like(found[-1], np.inf)
            for types, states in _following(graph, len(found)).of_types:
                before[states] = _least_sums(tables[types], found[-1][states])
            values = before[grade.targets] + link_costs[grade.links]
            values += opening[grade.moves][:, None]
            _combine(np.minimum, grade, values, least)
        least[:, -1] = 0.0
        found.append(least)
    return found[::-1]


def _opening(graph: StateGraph, costs: Costs) -> Floats:
    """Return what each move costs at least because a board is used for the first time."""
    roles = graph.roles
    group_of = {slot: group for group, slots in enumerate(roles.slots) for slot in slots}
    least = [
        min(costs.boards[board] for board, of in enumerate(roles.class_of) if of == group)
        if len(roles.boards) == len(costs.boards)
        else 0.0
        for group in range(len(roles.slots))
    ]
    return np.array([0.0 if move.before else least[group_of[move.slot]] for move in graph.moves])


def _least_sums(table: Floats, after: Floats) -> Floats:
    """Return the least sum of a span's cost and what comes after it, (states, cuts)."""
    sums = np.full_like(after, np.inf)
    known = np.isfinite(table)
    for cut in np.flatnonzero(known.any(axis=1)):
        ends = np.flatnonzero(known[cut])
        low, high = ends[0], ends[-1] + 1
        sums[:, cut] = (after[:, low:high] + table[cut, low:high]).min(axis=1)
    return sums


# Forwards


class _Way(NamedTuple):
    """A slice that may come next."""

    total: float
    """What the whole plan costs at least."""
    back: int
    """Minus the cut where it ends: of equal costs, the furthest one first."""
    device: int
    state: int
    """Of the graph, behind this slice."""
    cost: float
    """Of the plan up to its end."""

    @property
    def end(self) -> int:
        """The cut where it ends."""
        return -self.back


@dataclass
class Walk:
    """A walk through real devices to the plan that costs least."""

    chain: Chain
    graph: StateGraph
    costs: Costs
    least: list[Floats]
    """What completing costs at least: of :func:`completion_costs`."""
    steps: Steps
    best: float = math.inf
    plan: tuple[PlacedSlice, ...] | None = None
    _placed: list[PlacedSlice] = field(default_factory=list)
    _held: list[float] = field(default_factory=list)
    _before: list[float] = field(default_factory=list)
    _used: list[int] = field(default_factory=list)
    _devices: set[int] = field(default_factory=set)
    _seen: dict[object, float] = field(default_factory=dict)

    def run(self) -> None:
        """Set ``plan`` and ``best``.

        Raises:
            OutOfSteps: the plan found so far, if any, may not be the best.
        """
        self._role = _DeviceRoles(self.graph)
        self._messages = self.costs.messages(self.chain.link_s)
        self._held = [0.0] * len(self.chain.boards)
        self._used = [0] * len(self.graph.roles.boards)
        ways = [self._ways(0, 0, 0, 0.0)]
        while ways:
            way = next(ways[-1], None)
            if way is not None and way.total < self._worth:
                self.steps.take()
                self._place(way)
                ways.append(self._ways(len(ways), way.state, way.end, way.cost))
                continue
            ways.pop()
            if self._placed:
                self._take_back()

    @property
    def _worth(self) -> float:
        """What a plan has to cost less than; equal but for rounding is no better."""
        return self.best * (1 - _ROUNDING)

    def _ways(self, grade: int, state: int, cut: int, cost: float) -> Iterator[_Way]:
        """Return the next slices worth trying, those that promise most first; note whole plans."""
        if cut == self.chain.layers:
            if cost < self.best:
                self.best, self.plan = cost, tuple(self._placed)
            return iter(())
        key = (grade, state, cut, self._signature())
        if self._seen.get(key, math.inf) <= cost:
            return iter(())
        self._seen[key] = cost
        return iter(sorted(self._choices(grade, state, cut, cost)))

    def _place(self, way: _Way) -> None:
        """Give a device a slice."""
        cut = self._placed[-1].end if self._placed else 0
        board = self.chain.board_of[way.device]
        self._before.append(self._held[board])
        self._held[board] += self.chain.span_bytes[self.chain.type_of[way.device]][cut, way.end]
        self._used[self._role.board[way.device]] ^= self._role.bit[way.device]
        self._devices.add(way.device)
        self._placed.append(PlacedSlice(way.device, cut, way.end))

    def _take_back(self) -> None:
        """Take the last slice from its device."""
        device = self._placed.pop().device
        self._devices.remove(device)
        self._used[self._role.board[device]] ^= self._role.bit[device]
        self._held[self.chain.board_of[device]] = self._before.pop()

    def _cost(self, device: int, cut: int) -> Floats:
        """Return what the next slice costs on a device, by the cut where it ends."""
        chain = self.chain
        cost: Floats = self.costs.spans[chain.type_of[device]][cut]
        extra = 0.0
        if self._placed:
            link = chain.link_of[self._placed[-1].device, device]
            extra = float(self._messages[link, cut])
        board = chain.board_of[device]
        if not any(other in self._devices for other in chain.boards[board]):
            extra += self.costs.boards[board]
        whole: Floats = cost + extra
        return whole

    def _choices(self, grade: int, state: int, cut: int, cost: float) -> Iterator[_Way]:
        """Yield the next slices that leave hope for a better plan."""
        chain, here = self.chain, self.graph.grades[grade]
        first, last = np.searchsorted(here.sources, [state, state + 1])
        for target, move in zip(
            here.targets[first:last].tolist(), here.moves[first:last].tolist(), strict=True
        ):
            for device in self._candidates(self.graph.moves[move]):
                costs = self._cost(device, cut) + cost
                totals = costs + self.least[grade + 1][target]
                board = chain.board_of[device]
                held = chain.span_bytes[chain.type_of[device]][cut] + self._held[board]
                fine = (totals < self._worth) & (held <= chain.capacity_bytes[board])
                for end in np.flatnonzero(fine).tolist():
                    yield _Way(float(totals[end]), -end, device, target, float(costs[end]))

    def _candidates(self, move: Move) -> Iterator[int]:
        """Yield the devices that a move can mean; of those that are alike, one."""
        role, chain = self._role, self.chain
        last = role.board[self._placed[-1].device] if self._placed else -1
        met = set()
        for device in self.graph.roles.devices[move.slot]:
            board = role.board[device]
            if self._used[board] != move.before or (board == last) != move.stays:
                continue
            alike = role.like[device], self._held[chain.board_of[device]], self._context(device)
            if alike not in met:
                met.add(alike)
                yield device

    def _context(self, device: int) -> object:
        """Return what tells apart devices that are alike when nothing is placed."""
        if self.graph.roles.exact:
            return None
        board = self.chain.board_of[device]
        placed = tuple(
            self._role.like[other] for other in self.chain.boards[board] if other in self._devices
        )
        is_last = bool(self._placed) and self.chain.board_of[self._placed[-1].device] == board
        return placed, is_last, is_last and self._placed[-1].device

    def _signature(self) -> object:
        """Return what else than state and cut matters for what can follow."""
        shared = tuple(sorted(self._loads()))
        if self.graph.roles.exact:
            return shared
        return shared, frozenset(self._devices), self._placed[-1].device if self._placed else -1

    def _loads(self) -> Iterator[tuple[int, int, float, bool]]:
        """Yield memory in use on boards that have room for one more slice."""
        last = self.chain.board_of[self._placed[-1].device] if self._placed else -1
        for board, held in enumerate(self._held):
            devices = self.chain.boards[board]
            if not held or math.isinf(self.chain.capacity_bytes[board]) or len(devices) == 1:
                continue
            if all(device in self._devices for device in devices):
                continue
            if self.graph.roles.exact:
                yield self.graph.roles.class_of[board], self._used[board], held, board == last
            else:
                yield board, 0, held, board == last


class _DeviceRoles:
    """Board, slot and class of each device, as the graph sees them."""

    def __init__(self, graph: StateGraph) -> None:
        roles = graph.roles
        self.board = {
            device: board for board, devices in enumerate(roles.boards) for device in devices
        }
        slot_of = {device: slot for slot, devices in enumerate(roles.devices) for device in devices}
        first = {slot: slots[0] for slots in roles.slots for slot in slots}
        self.bit = {device: 1 << slot - first[slot] for device, slot in slot_of.items()}
        self.like = graph.alike
