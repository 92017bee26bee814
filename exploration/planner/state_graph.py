"""Which devices are used so far, and which comes next: a graph that leaves out what is alike.

Boards that can be exchanged without changing any cost are of one *class*; it only matters how many
of a class have which of their accelerators in use. The states of the graph are these numbers
together with the accelerator that got the last slice; its edges give one more accelerator a slice.
States are *graded* by the number of accelerators in use.

Where several devices of a type can take turns on a slice, each device counts as a board of its own,
and the devices of a type as one class: an edge gives several of them a slice. That is exact if the
links between two types are all alike, and no board stands out. Otherwise it is a relaxation.

A graph of all classes can be too large. Then boards that are not quite alike are put into one
class, with the fastest of their links: what cannot be done there cannot be done at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain as joined, count, product

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import Chain, Floats

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles of devices: each has a *slot* in the class of its board."""

    exact: bool
    """Whether devices of one slot are really alike; if not, this is a relaxation."""
    boards: tuple[tuple[int, ...], ...]
    """Board -> its devices. In a coarse relaxation each device is a board of its own."""
    class_of: tuple[int, ...]
    """Board -> class."""
    slots: tuple[tuple[int, ...], ...]
    """Class -> its slots."""
    devices: tuple[tuple[int, ...], ...]
    """Slot -> devices."""
    types: tuple[frozenset[int], ...]
    """Slot -> types of its devices: one, if this is exact."""
    across: Indices
    """(slots, slots): link for messages between two boards; -1: there are none."""
    within: Indices
    """(slots, slots): the same inside one board."""
    turns: tuple[int, ...]
    """Class -> how many of its devices can take turns."""
    forgets: bool
    """Whether states do not tell how many took turns last: then as many as can."""
    link_s: Floats
    """(links + 1, cuts): time of messages at each cut; the last row stands for no message."""
    load_s: Floats
    """The same: for how long per frame a device sends or receives. Each link has as many rows as
    devices can take turns: of sender and receiver, the one that gets more frames counts."""

    def size(self, group: int) -> int:
        return self.class_of.count(group)


@dataclass(frozen=True, slots=True)
class Move:
    """One more accelerator gets a slice, or several that take turns."""

    slot: int
    before: int
    """Which slots of the board were in use, one bit for each of its class."""
    stays: bool
    """Whether the board is the one of the slice before."""
    turns: int
    """How many accelerators of the class get the slice."""


@dataclass(frozen=True, slots=True)
class Grade:
    """States with equally many accelerators in use, and the edges that leave them."""

    states: slice
    """Their numbers."""
    ends: tuple[tuple[frozenset[int], int, Indices], ...]
    """States by the types of the last slice's slot, and by how many devices take turns."""
    sources: Indices
    """Edge -> state, ascending."""
    leaving: tuple[Indices, Indices]
    """States with edges, and the first edge of each."""
    targets: Indices
    """Edge -> state of a later grade."""
    links: Indices
    """Edge -> row of ``link_s``."""
    moves: Indices
    """Edge -> move."""


@dataclass(frozen=True, slots=True)
class StateGraph:
    """All states that can be reached, numbered from 0: nothing is in use."""

    roles: Roles
    moves: tuple[Move, ...]
    grades: tuple[Grade, ...]
    """The first has one state. The last has no edges."""
    alike: tuple[int, ...]
    """Device -> the number of its group of exchangeable devices."""

    @property
    def states(self) -> int:
        return int(self.grades[-1].states.stop)


def state_graph(chain: Chain, most: int) -> StateGraph:
    """Return the exact graph, or the finest relaxation of it that has few enough states."""
    ways = _all_roles(chain)
    exact = next(ways)  # unless devices can take turns and differ
    slot_of = {device: slot for slot, devices in enumerate(exact.devices) for device in devices}
    numbers = range(len(chain.devices))
    alike = tuple(slot_of[device] if exact.exact else device for device in numbers)
    chosen = next(roles for roles in joined([exact], ways) if _most_states(roles) <= most)
    return _Builder(chosen).graph(alike)


# Roles of devices


def _all_roles(chain: Chain) -> Iterator[Roles]:
    """Yield the exact roles of devices, if there are any, then coarser and coarser ones."""
    takes_turns = max(chain.turns) > 1
    if not takes_turns:
        yield from _by_boards(chain)
    alone = tuple((device,) for device in range(len(chain.devices)))
    kinds: list[int] = list(chain.type_of)
    exact = takes_turns and _is_uniform(chain)
    while True:
        yield _roles(chain, alone, _numbered(kinds), exact=exact)
        if takes_turns:
            yield _roles(chain, alone, _numbered(kinds), exact=False, forgets=True)
        if len(set(kinds)) == 1:
            return
        # The two rarest types are taken for one.
        rare, next_rare, *_ = sorted(set(kinds), key=lambda kind: (kinds.count(kind), kind))
        kinds, exact = [next_rare if kind == rare else kind for kind in kinds], False


def _by_boards(chain: Chain) -> Iterator[Roles]:
    """Yield the exact roles of devices that do not take turns; then, by hardware alone."""
    boards = tuple(
        tuple(sorted(devices, key=chain.type_of.__getitem__)) for devices in chain.boards
    )
    hardware = [tuple(chain.type_of[device] for device in devices) for devices in boards]
    yield _roles(chain, boards, _alike(chain, boards, hardware), exact=True)
    yield _roles(chain, boards, _numbered(hardware), exact=False)


def _is_uniform(chain: Chain) -> bool:
    """Return whether exchanging any devices of one type changes nothing."""
    if 1 < len(chain.boards) < len(chain.devices):
        return False
    types = np.array(chain.type_of)
    numbers = np.arange(types.size)
    for one in range(len(chain.types)):
        alike = [chain.devices[device] for device in np.flatnonzero(types == one)]
        if chain.counts_power and len({(device.idle_w, device.busy_w) for device in alike}) > 1:
            return False
        for other in range(len(chain.types)):
            pairs = np.outer(types == one, types == other) & (numbers[:, None] != numbers)
            if np.unique(chain.link_of[pairs]).size > 1:
                return False
    return True


def _numbered(keys: list[int] | list[tuple[int, ...]]) -> tuple[int, ...]:
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return tuple(number[key] for key in keys)


def _alike(
    chain: Chain, boards: tuple[tuple[int, ...], ...], hardware: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """Return each board's class: two are alike if exchanging them changes nothing."""

    def are_alike(one: int, other: int) -> bool:
        idle = [chain.devices[boards[board][0]].idle_w for board in (one, other)]
        same_power = not chain.counts_power or idle[0] == idle[1]
        same = hardware[one] == hardware[other] and same_power
        return same and _may_swap(chain, boards[one], boards[other])

    examples: list[int] = []  # a board of each class
    classes = []
    for board in range(len(boards)):
        known = (index for index, example in enumerate(examples) if are_alike(board, example))
        classes.append(next(known, len(examples)))
        examples += [board] * (classes[-1] == len(examples))
    return tuple(classes)


def _may_swap(chain: Chain, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    order = np.arange(len(chain.devices))
    order[[*one, *other]] = [*other, *one]
    return bool(np.array_equal(chain.link_of[np.ix_(order, order)], chain.link_of))


def _roles(
    chain: Chain,
    boards: tuple[tuple[int, ...], ...],
    class_of: tuple[int, ...],
    *,
    exact: bool,
    forgets: bool = False,
) -> Roles:
    slots: list[tuple[int, ...]] = []
    devices: list[list[int]] = []
    for group in range(max(class_of) + 1):
        members = [boards[board] for board, of in enumerate(class_of) if of == group]
        first = len(devices)
        devices += [[member[slot] for member in members] for slot in range(len(members[0]))]
        slots.append(tuple(range(first, len(devices))))
    types = tuple(frozenset(chain.type_of[device] for device in members) for members in devices)
    turns = tuple(max(chain.turns[one] for slot in group for one in types[slot]) for group in slots)
    board_of = {device: board for board, members in enumerate(boards) for device in members}
    rows: dict[frozenset[int], int] = {}

    def fastest(one: list[int], other: list[int], same: bool) -> int:
        """Return the row of the fastest link between devices of two slots; -1: there is none."""
        links = frozenset(
            int(chain.link_of[sender, receiver])
            for sender in one
            for receiver in other
            if sender != receiver and (board_of[sender] == board_of[receiver]) == same
        )
        return rows.setdefault(links, len(rows)) if links else -1

    across, within = (
        np.array([[fastest(one, other, same) for other in devices] for one in devices])
        for same in (False, True)
    )
    # Of several possible links, the least time at each cut; each as often as devices take turns.
    times = [chain.link_s[sorted(links)].min(axis=0) for links in rows]
    link_s = np.repeat([*times, chain.link_s[-1]], max(turns), axis=0)
    shares = np.tile(np.arange(1, max(turns) + 1), len(times) + 1)
    return Roles(
        exact,
        boards,
        class_of,
        tuple(slots),
        tuple(map(tuple, devices)),
        types,
        across,
        within,
        turns,
        forgets,
        link_s,
        link_s / shares[:, None],
    )


def _most_states(roles: Roles) -> float:
    states = 1.0
    for group, slots in enumerate(roles.slots):
        uses = 2 ** len(slots) - 1
        if uses > 255:
            return math.inf
        states *= math.comb(roles.size(group) + uses, uses)
    return states * sum(
        (1 if roles.forgets else turns) * len(slots) << (len(slots) - 1)
        for turns, slots in zip(roles.turns, roles.slots, strict=True)
    )


# The graph


@dataclass(frozen=True, slots=True)
class _States:
    boards: Indices
    """(states, cells): boards of a class that have the same slots in use."""
    last: Indices
    """Index into ``_Builder.ends``; -1: nothing is in use."""


@dataclass(frozen=True, slots=True)
class _Edges:
    """Edges of one move from the states of a grade."""

    grade: int
    move: int
    sources: Indices
    links: Indices
    states: _States
    """Where they lead, edge by edge."""


class _Builder:
    """Makes the graph grade by grade, all states of a grade together.

    A *cell* stands for the boards of one class with the same slots in use.
    """

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.shares = max(roles.turns)
        self.cells = [
            (group, used)
            for group, slots in enumerate(roles.slots)
            for used in range(1, 2 ** len(slots))
        ]
        self.cell_of = {cell: index for index, cell in enumerate(self.cells)}
        self.ends = [
            (self.cell_of[group, used], slot, turns)
            for group, used in self.cells
            for bit, slot in enumerate(roles.slots[group])
            if used >> bit & 1
            for turns in range(roles.turns[group] if roles.forgets else 1, roles.turns[group] + 1)
        ]
        self.end_of = {end: index for index, end in enumerate(self.ends)}
        self.end_cells, self.end_slots, self.end_turns = np.array(self.ends).T
        self.place_of = {
            slot: (group, bit)
            for group, slots in enumerate(roles.slots)
            for bit, slot in enumerate(slots)
        }
        self.moves = tuple(self._moves())

    def _moves(self) -> Iterator[Move]:
        roles = self.roles
        for group, used in joined(self.cells, [(index, 0) for index in range(len(roles.slots))]):
            for bit, slot in enumerate(roles.slots[group]):
                turns = range(1, roles.turns[group] + 1) if not used >> bit & 1 else ()
                for stays, taken in product((False, True) if used else (False,), turns):
                    yield Move(slot, used, stays, taken)

    def _edges(self, grade: int, number: int, states: _States) -> _Edges:
        """Return the edges of a move from the states that have enough boards for it."""
        move = self.moves[number]
        group, bit = self.place_of[move.slot]
        before = self.cell_of.get((group, move.before))
        after = self.cell_of[group, move.before | 1 << bit]
        sources = np.flatnonzero(self._left(states, group, before, move.stays) >= move.turns)
        boards = states.boards[sources]
        boards[:, after] += move.turns
        if before is not None:
            boards[:, before] -= move.turns
        turns = self.roles.turns[group] if self.roles.forgets else move.turns
        last = np.full(sources.size, self.end_of[after, move.slot, turns])
        links = self._link(states.last[sources], move)
        return _Edges(grade, number, sources, links, _States(boards, last))

    def _left(self, states: _States, group: int, before: int | None, stays: bool) -> Indices:
        """Return for each state how many boards a move can take."""
        if before is None:
            cells = [index for index, (of, _) in enumerate(self.cells) if of == group]
            fresh: Indices = self.roles.size(group) - states.boards[:, cells].sum(axis=1)
            return fresh
        is_last = (states.last >= 0) & (self.end_cells[states.last] == before)
        others: Indices = states.boards[:, before] - is_last
        return is_last.astype(np.intp) if stays else others

    def _link(self, last: Indices, move: Move) -> Indices:
        table = self.roles.within if move.stays else self.roles.across
        shares = np.minimum(self.end_turns[last], move.turns)
        rows = self.shares * table[self.end_slots[last], move.slot] + shares - 1
        return np.where(last < 0, -1, rows)

    def graph(self, alike: tuple[int, ...]) -> StateGraph:
        arriving: dict[int, list[_Edges]] = {}
        leaving: list[list[Indices]] = []
        by_grade = [_States(np.zeros((1, len(self.cells)), np.intp), np.array([-1]))]
        first = [0]
        for grade in count():
            leaving.append([])
            for number, move in enumerate(self.moves):
                edges = self._edges(grade, number, by_grade[grade])
                if edges.sources.size:
                    arriving.setdefault(grade + move.turns, []).append(edges)
            if not arriving:
                break
            first.append(first[-1] + by_grade[-1].last.size)
            here = arriving.pop(grade + 1)
            states, targets = self._distinct(here)
            by_grade.append(states)
            for edges, numbers in zip(here, targets, strict=True):
                sources, moves = (
                    edges.sources + first[edges.grade],
                    np.full_like(numbers, edges.move),
                )
                leaving[edges.grade].append(
                    np.stack([sources, numbers + first[-1], edges.links, moves])
                )
        grades = tuple(map(self._grade, first, by_grade, leaving))
        return StateGraph(self.roles, self.moves, grades, alike)

    def _grade(self, first: int, states: _States, edges: list[Indices]) -> Grade:
        """Return a grade; ``edges``: sources, targets, links and moves, (4, edges) each."""
        all_edges = np.concatenate([np.zeros((4, 0), np.intp), *edges], axis=1)
        sources, *others = all_edges[:, np.argsort(all_edges[0], kind="stable")]
        leaving = np.unique(sources, return_index=True)
        here = slice(first, first + states.last.size)
        return Grade(here, self._ends(first, states), sources, leaving, *others)

    def _ends(self, first: int, states: _States) -> tuple[tuple[frozenset[int], int, Indices], ...]:
        """Return states by the types of their last slices' slots, and by turns."""
        by_end: dict[tuple[frozenset[int], int], list[Indices]] = {}
        slots = np.where(states.last < 0, -1, self.end_slots[states.last])
        turns = self.end_turns[states.last]
        for slot, types in enumerate(self.roles.types):
            for share in range(1, self.shares + 1):
                which = np.flatnonzero((slots == slot) & (turns == share)) + first
                if which.size:
                    by_end.setdefault((types, share), []).append(which)
        return tuple((*key, np.concatenate(which)) for key, which in by_end.items())

    def _distinct(self, made: list[_Edges]) -> tuple[_States, list[Indices]]:
        """Return the distinct states that edges lead to, and where those of each move lead."""
        boards = np.concatenate([edges.states.boards for edges in made])
        last = np.concatenate([edges.states.last for edges in made])
        bases = [self.roles.size(group) + 1 for group, _ in self.cells]
        if math.prod(bases) * len(self.ends) < 2**62:  # one number for a state
            weights = [
                math.prod(bases[index + 1 :]) * len(self.ends) for index in range(len(bases))
            ]
            keys, axis = boards @ np.array(weights) + last, None
        else:
            keys, axis = np.column_stack([boards, last]), 0
        _, kept, targets = np.unique(keys, return_index=True, return_inverse=True, axis=axis)
        ends = np.cumsum([edges.sources.size for edges in made])[:-1]
        return _States(boards[kept], last[kept]), np.split(targets.reshape(-1), ends)
