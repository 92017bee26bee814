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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import (
    Chain,
    Flags,
    Floats,
    PlacedSlice,
    limit_in_turn,
)
from rankslice.exploration.planner.state_graph import Grade, Move, StateGraph

_ROUNDING = 1e-13
"""Relative difference of sums of the same numbers, added up in another order, at most."""


class _OutOfSteps(Exception):  # noqa: N818 - nothing went wrong
    """A walk took as many steps as it was granted."""


@dataclass(frozen=True)
class Costs:
    """What is added up along a plan; infinite where a limit is not kept."""

    chain: Chain
    weights: tuple[float, ...]
    """Device -> what a slice costs per second of its time."""
    message: float
    """What a message costs per second of its time."""
    limit: float
    """For how long a device or a cable may be busy per frame, in s."""
    boards: tuple[float, ...]
    """Board -> what its first slice costs on top."""

    @cached_property
    def least(self) -> tuple[float, ...]:
        """Type -> the least weight of its devices."""
        owners = zip(self.chain.type_of, self.weights, strict=True)
        by_type = sorted(owners, reverse=True)  # the least weight of a type comes last
        return tuple(weight for _, weight in sorted(dict(by_type).items()))

    def above(self, devices: tuple[int, ...]) -> float:
        """Return the cost per second of a slice's time, above the least of the type."""
        mean = sum(self.weights[device] for device in devices) / len(devices)
        return mean - self.least[self.chain.type_of[devices[0]]]

    def spans(self, kind: int, turns: int) -> Floats:
        table = self.chain.span_s[kind]
        fine = self.chain.fits[kind] & (table <= limit_in_turn(self.limit, turns))
        return np.where(fine, self.least[kind] * np.where(fine, table, 0.0), np.inf)

    def messages(self, link_s: Floats, load_s: Floats) -> Floats:
        fine = (load_s <= self.limit) & np.isfinite(link_s)
        costs = np.full_like(link_s, np.inf)
        costs[fine] = self.message * link_s[fine]
        return costs


# Backwards


def completions(chain: Chain, graph: StateGraph, limit: float) -> Flags:
    """Return which cuts each state can complete the plan from, (states, cuts).

    Args:
        limit: for how long a device or a cable may be busy per frame, in s.
    """
    roles = graph.roles
    crossed = (roles.load_s <= limit) & np.isfinite(roles.link_s)
    spans: dict[tuple[frozenset[int], int], _Spans] = {}
    done = np.zeros((graph.states, chain.cuts), np.bool_)
    before = np.zeros_like(done)
    for grade in reversed(graph.grades):
        brought = before[grade.targets] & crossed[grade.links]
        _combine(np.logical_or, grade, brought, done)
        done[grade.states, -1] = True
        for types, turns, states in grade.ends:
            if (types, turns) not in spans:
                spans[types, turns] = _Spans(chain, types, limit_in_turn(limit, turns))
            before[states] = spans[types, turns].begins(done[states])
    return done


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


def completion_costs(chain: Chain, graph: StateGraph, costs: Costs) -> Floats:
    """Return the least cost of completing the plan, (states, cuts)."""
    roles = graph.roles
    link_costs = costs.messages(roles.link_s, roles.load_s)
    tables: dict[tuple[frozenset[int], int], Floats] = {}
    opening = _opening(graph, costs)
    least = np.full((graph.states, chain.cuts), np.inf)
    before = np.full_like(least, np.inf)
    for grade in reversed(graph.grades):
        brought = before[grade.targets] + link_costs[grade.links]
        brought += opening[grade.moves][:, None]
        _combine(np.minimum, grade, brought, least)
        least[grade.states, -1] = 0.0
        for types, turns, states in grade.ends:
            if (types, turns) not in tables:
                by_type = [costs.spans(index, turns) for index in types]
                tables[types, turns] = np.minimum.reduce(by_type)
            before[states] = _least_sums(tables[types, turns], least[states])
    return least


def _opening(graph: StateGraph, costs: Costs) -> Floats:
    roles = graph.roles
    group_of = {slot: group for group, slots in enumerate(roles.slots) for slot in slots}
    least = [
        min(costs.boards[board] for board, of in enumerate(roles.class_of) if of == group)
        if len(roles.boards) == len(costs.boards)
        else 0.0
        for group in range(len(roles.slots))
    ]
    return np.array(
        [0.0 if move.before else move.turns * least[group_of[move.slot]] for move in graph.moves]
    )


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
    total: float
    back: int
    """Minus the cut where it ends: of equal costs, the furthest one first."""
    devices: tuple[int, ...]
    state: int
    """Of the graph, behind this slice."""
    cost: float

    @property
    def end(self) -> int:
        return -self.back


class Walk:
    """A walk through real devices to the plan that costs least."""

    def __init__(
        self, chain: Chain, graph: StateGraph, costs: Costs, least: Floats, steps: int
    ) -> None:
        """Take what completing costs at least, of :func:`completion_costs`, and the most steps."""
        self.chain, self.graph, self.costs, self.least = chain, graph, costs, least
        self.steps = steps
        """How many more it may take."""
        self.best = math.inf
        self.plan: tuple[PlacedSlice, ...] | None = None
        roles = graph.roles
        self._board = {
            device: board for board, devices in enumerate(roles.boards) for device in devices
        }
        bit_of = {slot: slot - slots[0] for slots in roles.slots for slot in slots}
        self._bit = {
            device: 1 << bit_of[slot]
            for slot, devices in enumerate(roles.devices)
            for device in devices
        }
        self._messages = costs.messages(chain.link_s, chain.link_s)
        self._held = [0.0] * len(chain.boards)
        self._used = [0] * len(roles.boards)
        self._placed: list[PlacedSlice] = []
        self._before: list[list[float]] = []
        self._devices: set[int] = set()
        self._seen: dict[object, float] = {}
        self._tables: dict[tuple[int, int], Floats] = {}

    def run(self) -> bool:
        """Set ``plan`` and ``best``; return whether these are certain, within the steps."""
        try:
            self._search()
        except _OutOfSteps:
            return False
        return True

    def _take_step(self) -> None:
        if not self.steps:
            raise _OutOfSteps
        self.steps -= 1

    def _search(self) -> None:
        ways = [self._ways(0, 0, 0.0)]
        while ways:
            way = next(ways[-1], None)
            if way is not None and way.total < self._worth:
                self._take_step()
                self._place(way)
                ways.append(self._ways(way.state, way.end, way.cost))
                continue
            ways.pop()
            if self._placed:
                self._take_back()

    @property
    def _worth(self) -> float:
        """What a plan has to cost less than; equal but for rounding is no better."""
        return self.best * (1 - _ROUNDING)

    @property
    def _last(self) -> tuple[int, ...]:
        return self._placed[-1].devices if self._placed else ()

    def _ways(self, state: int, cut: int, cost: float) -> Iterator[_Way]:
        """Return the next slices worth trying, those that promise most first; note whole plans."""
        if cut == self.chain.layers:
            if cost < self.best:
                self.best, self.plan = cost, tuple(self._placed)
            return iter(())
        key = (state, cut, self._signature())
        if self._seen.get(key, math.inf) <= cost:
            return iter(())
        self._seen[key] = cost
        return iter(sorted(self._choices(state, cut, cost)))

    def _place(self, way: _Way) -> None:
        cut = self._placed[-1].end if self._placed else 0
        self._before.append([self._held[self.chain.board_of[device]] for device in way.devices])
        size = self.chain.span_bytes[self.chain.type_of[way.devices[0]]][cut, way.end]
        for device in way.devices:
            self._held[self.chain.board_of[device]] += size
            self._used[self._board[device]] ^= self._bit[device]
        self._devices.update(way.devices)
        self._placed.append(PlacedSlice(way.devices, cut, way.end))

    def _take_back(self) -> None:
        devices = self._placed.pop().devices
        self._devices.difference_update(devices)
        for device, held in zip(reversed(devices), reversed(self._before.pop()), strict=True):
            self._used[self._board[device]] ^= self._bit[device]
            self._held[self.chain.board_of[device]] = held

    def _slices(self, kind: int, turns: int) -> Floats:
        if (kind, turns) not in self._tables:
            self._tables[kind, turns] = self.costs.spans(kind, turns)
        return self._tables[kind, turns]

    def _extra(self, devices: tuple[int, ...], cut: int) -> float:
        chain = self.chain
        extra = self._message(devices, cut) if self._placed else 0.0
        for board in {chain.board_of[device] for device in devices}:
            if not any(other in self._devices for other in chain.boards[board]):
                extra += self.costs.boards[board]
        return extra

    def _message(self, devices: tuple[int, ...], cut: int) -> float:
        if len(devices) == len(self._last) == 1:
            return float(self._messages[self.chain.link_of[self._last[0], devices[0]], cut])
        sent = self.chain.messages(self._last, devices, cut)
        # The graph has the same loads, added up in another order.
        if sent.load_s * (1 - _ROUNDING) > self.costs.limit or math.isinf(sent.longest_s):
            return math.inf
        return self.costs.message * sent.longest_s

    def _is_held(self, devices: tuple[int, ...], cut: int) -> Flags:
        """Return up to which cuts the boards have memory for the next slice, (cuts,)."""
        chain = self.chain
        size = chain.span_bytes[chain.type_of[devices[0]]][cut]
        needs: dict[int, Floats] = {}
        for board in map(chain.board_of.__getitem__, devices):
            needs[board] = size + needs.get(board, self._held[board])
        fits = [held <= chain.capacity_bytes[board] for board, held in needs.items()]
        return fits[0] if len(fits) == 1 else np.logical_and.reduce(fits)

    def _choices(self, state: int, cut: int, cost: float) -> Iterator[_Way]:
        """Yield the next slices that leave hope for a better plan."""
        graph = self.graph
        here = graph.grades[len(self._devices)]
        first, last = np.searchsorted(here.sources, [state, state + 1])
        for target, move in zip(
            here.targets[first:last].tolist(), here.moves[first:last].tolist(), strict=True
        ):
            for kind, choices in self._candidates(graph.moves[move]):
                slices = self._slices(kind, graph.moves[move].turns)[cut] + cost
                if not (slices + self.least[target] < self._worth).any():
                    continue
                for devices in choices:
                    extra = self._extra(devices, cut)
                    if math.isinf(extra):
                        continue
                    costs = slices + extra
                    if above := self.costs.above(devices):
                        costs = costs + above * self.chain.span_s[kind][cut]
                    totals = costs + self.least[target]
                    fine = (totals < self._worth) & self._is_held(devices, cut)
                    for end in np.flatnonzero(fine).tolist():
                        yield _Way(float(totals[end]), -end, devices, target, float(costs[end]))

    def _candidates(self, move: Move) -> Iterator[tuple[int, Iterable[tuple[int, ...]]]]:
        """Yield the types of device that a move can mean, and the devices of each that are free.

        Of choices that are alike there is one.
        """
        find = self._in_turn if max(self.graph.roles.turns) > 1 else self._alone
        free: dict[int, list[int]] = {}
        for device in self.graph.roles.devices[move.slot]:
            if device not in self._devices:
                free.setdefault(self.chain.type_of[device], []).append(device)
        for kind, devices in free.items():
            yield kind, find(move, devices)

    def _alone(self, move: Move, devices: list[int]) -> Iterator[tuple[int, ...]]:
        last = self._board[self._last[0]] if self._placed else -1
        met = set()
        for device in devices:
            board = self._board[device]
            if self._used[board] != move.before or (board == last) != move.stays:
                continue
            held = self._held[self.chain.board_of[device]]
            alike = self.graph.alike[device], held, self._context(device)
            if alike not in met:
                met.add(alike)
                yield (device,)

    def _in_turn(self, move: Move, devices: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield so many of some devices that differ.

        A step counts for each choice but the first, as there may be very many.
        """
        exchangeable = len({self.graph.alike[device] for device in devices}) == 1
        choices = combinations(devices, move.turns)
        for number, chosen in enumerate(islice(choices, 1 if exchangeable else None)):
            if number:
                self._take_step()
            yield chosen

    def _context(self, device: int) -> object:
        """Return what tells apart devices that are alike when nothing is placed."""
        if self.graph.roles.exact:
            return None
        board = self.chain.board_of[device]
        placed = tuple(
            self.graph.alike[other] for other in self.chain.boards[board] if other in self._devices
        )
        is_last = bool(self._placed) and self.chain.board_of[self._last[0]] == board
        return placed, is_last, is_last and self._last

    def _signature(self) -> object:
        """Return what else than state and cut matters for what can follow."""
        shared = tuple(sorted(self._loads()))
        if self.graph.roles.exact:
            return shared
        return shared, frozenset(self._devices), self._last

    def _loads(self) -> Iterator[tuple[int, int, float, bool]]:
        """Yield memory in use on boards that have room for one more slice."""
        roles = self.graph.roles
        by_class = roles.exact and len(roles.boards) == len(self._held)
        last = {self.chain.board_of[device] for device in self._last}
        for board, held in enumerate(self._held):
            devices = self.chain.boards[board]
            if not held or math.isinf(self.chain.capacity_bytes[board]) or len(devices) == 1:
                continue
            if all(device in self._devices for device in devices):
                continue
            if by_class:
                yield roles.class_of[board], self._used[board], held, board in last
            else:
                yield board, 0, held, board in last
