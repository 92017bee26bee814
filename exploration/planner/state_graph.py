"""Which devices are used so far, and which comes next: a graph that leaves out what is alike.

Boards that can be exchanged without changing any cost are of one *class*; it only matters how many
of a class have which of their accelerators in use. The states of the graph are these numbers
together with the accelerator that got the last slice; its edges give one more accelerator a slice.
States are *graded* by the number of accelerators in use.

A graph of all classes can be too large. Then boards that are not quite alike are put into one
class, with the fastest of their links: what cannot be done there cannot be done at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain as joined

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
    """(slots, slots): row of ``link_s`` for messages between two boards; -1: there are none."""
    within: Indices
    """(slots, slots): the same inside one board."""
    link_s: Floats
    """(links + 1, cuts): time of messages at each cut; the last row stands for no message."""

    def size(self, group: int) -> int:
        """Return the number of boards of a class."""
        return self.class_of.count(group)


@dataclass(frozen=True, slots=True)
class Move:
    """One more accelerator gets a slice."""

    slot: int
    before: int
    """Which slots of the board were in use, one bit for each of its class."""
    stays: bool
    """Whether the board is the one of the slice before."""


@dataclass(frozen=True, slots=True)
class Grade:
    """States with equally many accelerators in use, and the edges that leave them."""

    slots: Indices
    """State -> slot of the last slice."""
    of_types: tuple[tuple[frozenset[int], Indices], ...]
    """States by the types of the last slice's slot."""
    sources: Indices
    """Edge -> state, ascending."""
    leaving: tuple[Indices, Indices]
    """States with edges, and the first edge of each."""
    targets: Indices
    """Edge -> state of the next grade."""
    links: Indices
    """Edge -> row of ``link_s``."""
    moves: Indices
    """Edge -> move."""


@dataclass(frozen=True, slots=True)
class StateGraph:
    """All states that can be reached."""

    roles: Roles
    moves: tuple[Move, ...]
    grades: tuple[Grade, ...]
    """The first has one state: nothing is in use. The last has no edges."""
    alike: tuple[int, ...]
    """Device -> the number of its group of exchangeable devices."""


def state_graph(chain: Chain, most: int) -> StateGraph:
    """Return the exact graph, or the finest relaxation of it that has few enough states.

    Args:
        chain: what is to be placed.
        most: number of states.
    """
    ways = _all_roles(chain)
    exact = next(ways)
    slot_of = {device: slot for slot, devices in enumerate(exact.devices) for device in devices}
    alike = tuple(slot_of[device] for device in range(len(chain.devices)))
    found = next(roles for roles in joined([exact], ways) if _most_states(roles) <= most)
    return _Builder(found).graph(alike)


# Roles of devices


def _all_roles(chain: Chain) -> Iterator[Roles]:
    """Yield the exact roles of devices, then coarser and coarser ones."""
    boards = tuple(
        tuple(sorted(devices, key=chain.type_of.__getitem__)) for devices in chain.boards
    )
    hardware = [tuple(chain.type_of[device] for device in devices) for devices in boards]
    yield _roles(chain, boards, _alike(chain, boards, hardware), exact=True)
    yield _roles(chain, boards, _numbered(hardware), exact=False)
    alone = tuple((device,) for device in range(len(chain.devices)))
    kinds: list[int] = list(chain.type_of)
    while True:
        yield _roles(chain, alone, _numbered(kinds), exact=False)
        if len(set(kinds)) == 1:
            return
        kinds = _merged(chain, kinds)


def _numbered(keys: list[int] | list[tuple[int, ...]]) -> tuple[int, ...]:
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return tuple(number[key] for key in keys)


def _alike(
    chain: Chain, boards: tuple[tuple[int, ...], ...], hardware: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """Return each board's class: two are alike if exchanging them changes nothing."""
    found: list[int] = []  # a board of each class
    classes = []
    for board, devices in enumerate(boards):
        idle = chain.devices[devices[0]].idle_w
        for index, other in enumerate(found):
            same = hardware[board] == hardware[other]
            if chain.counts_power:
                same = same and idle == chain.devices[boards[other][0]].idle_w
            if same and _may_swap(chain, devices, boards[other]):
                classes.append(index)
                break
        else:
            classes.append(len(found))
            found.append(board)
    return tuple(classes)


def _may_swap(chain: Chain, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    order = np.arange(len(chain.devices))
    order[[*one, *other]] = [*other, *one]
    return bool(np.array_equal(chain.link_of[np.ix_(order, order)], chain.link_of))


def _merged(chain: Chain, kinds: list[int]) -> list[int]:
    """Return the types of devices, the two rarest ones taken for one."""
    counted = sorted(set(kinds), key=lambda kind: (kinds.count(kind), kind))
    return [counted[1] if kind == counted[0] else kind for kind in kinds]


def _roles(
    chain: Chain,
    boards: tuple[tuple[int, ...], ...],
    class_of: tuple[int, ...],
    *,
    exact: bool,
) -> Roles:
    slots: list[tuple[int, ...]] = []
    devices: list[list[int]] = []
    for group in range(max(class_of) + 1):
        members = [boards[board] for board, of in enumerate(class_of) if of == group]
        first = len(devices)
        devices += [[member[slot] for member in members] for slot in range(len(members[0]))]
        slots.append(tuple(range(first, len(devices))))
    links = _Links(chain)
    board_of = {device: board for board, members in enumerate(boards) for device in members}
    across, within = (
        np.array(
            [[links.fastest(one, other, board_of, same) for other in devices] for one in devices]
        )
        for same in (False, True)
    )
    return Roles(
        exact,
        boards,
        class_of,
        tuple(slots),
        tuple(map(tuple, devices)),
        tuple(frozenset(chain.type_of[device] for device in members) for members in devices),
        across,
        within,
        links.table(),
    )


class _Links:
    """Gathers the links between slots: of several possible ones, the least time at each cut."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.rows: dict[frozenset[int], int] = {}

    def fastest(
        self, one: list[int], other: list[int], board_of: dict[int, int], same: bool
    ) -> int:
        """Return the row of the fastest link between devices of two slots; -1: there is none."""
        link_of = self.chain.link_of
        found = frozenset(
            int(link_of[sender, receiver])
            for sender in one
            for receiver in other
            if sender != receiver and (board_of[sender] == board_of[receiver]) == same
        )
        return self.rows.setdefault(found, len(self.rows)) if found else -1

    def table(self) -> Floats:
        """Return the time of each row at each cut, and of no message at all."""
        times = [self.chain.link_s[sorted(links)].min(axis=0) for links in self.rows]
        return np.array([*times, self.chain.link_s[-1]])


def _most_states(roles: Roles) -> float:
    """Return an upper bound of the number of states."""
    states = 1.0
    for group, slots in enumerate(roles.slots):
        uses = 2 ** len(slots) - 1
        if uses > 255:
            return math.inf
        states *= math.comb(roles.size(group) + uses, uses)
    return states * sum(len(slots) << (len(slots) - 1) for slots in roles.slots)


# The graph


@dataclass(frozen=True, slots=True)
class _States:
    """States of one grade."""

    boards: Indices
    """(states, cells): boards of a class that have the same slots in use."""
    last: Indices
    """Index into ``_Builder.ends``; -1: nothing is in use."""


class _Builder:
    """Makes the graph grade by grade, all states of a grade together.

    A *cell* stands for the boards of one class with the same slots in use.
    """

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.cells = [
            (group, used)
            for group, slots in enumerate(roles.slots)
            for used in range(1, 2 ** len(slots))
        ]
        cell_of = {cell: index for index, cell in enumerate(self.cells)}
        self.ends = [
            (cell_of[group, used], slot)
            for group, used in self.cells
            for bit, slot in enumerate(roles.slots[group])
            if used >> bit & 1
        ]
        end_of = {end: index for index, end in enumerate(self.ends)}
        self.end_cells = np.array([cell for cell, _ in self.ends])
        self.end_slots = np.array([slot for _, slot in self.ends])
        self.moves: list[Move] = []
        self.steps: list[Callable[[_States], tuple[Indices, Indices, _States]]] = []
        for group, used in joined(self.cells, [(index, 0) for index in range(len(roles.slots))]):
            for bit, slot in enumerate(roles.slots[group]):
                if not used >> bit & 1:
                    after = cell_of[group, used | 1 << bit]
                    self._add_moves(group, used, slot, cell_of.get((group, used)), after, end_of)

    def _add_moves(
        self,
        group: int,
        used: int,
        slot: int,
        before: int | None,
        after: int,
        end_of: dict[tuple[int, int], int],
    ) -> None:
        """Add the ways to give a slot of a cell's boards a slice."""
        for stays in (False, True) if before is not None else (False,):

            def step(states: _States, stays: bool = stays) -> tuple[Indices, Indices, _States]:
                left = self._left(states, group, before, stays)
                sources = np.flatnonzero(left)
                boards = states.boards[sources]
                boards[:, after] += 1
                if before is not None:
                    boards[:, before] -= 1
                last = np.full(sources.size, end_of[after, slot])
                return sources, self._link(states.last[sources], slot, stays), _States(boards, last)

            self.moves.append(Move(slot, used, stays))
            self.steps.append(step)

    def _left(self, states: _States, group: int, before: int | None, stays: bool) -> Indices:
        """Return for each state how many boards a move can take."""
        if before is None:
            cells = [index for index, (of, _) in enumerate(self.cells) if of == group]
            fresh: Indices = self.roles.size(group) - states.boards[:, cells].sum(axis=1)
            return fresh
        is_last = (states.last >= 0) & (self.end_cells[states.last] == before)
        others: Indices = states.boards[:, before] - is_last
        return is_last.astype(np.intp) if stays else others

    def _link(self, last: Indices, slot: int, stays: bool) -> Indices:
        table = self.roles.within if stays else self.roles.across
        return np.where(last < 0, -1, table[self.end_slots[last], slot])

    def graph(self, alike: tuple[int, ...]) -> StateGraph:
        """Return the graph of all states that can be reached."""
        states = _States(np.zeros((1, len(self.cells)), np.intp), np.array([-1]))
        grades = []
        while states.last.size:
            grade, states = self._grade(states)
            grades.append(grade)
        return StateGraph(self.roles, tuple(self.moves), tuple(grades), alike)

    def _grade(self, states: _States) -> tuple[Grade, _States]:
        """Return the grade of some states, and the states of the next one."""
        made = [step(states) for step in self.steps]
        sources = np.concatenate([source for source, _, _ in made])
        links = np.concatenate([link for _, link, _ in made])
        moves = np.repeat(np.arange(len(made)), [source.size for source, _, _ in made])
        boards = np.concatenate([after.boards for _, _, after in made])
        last = np.concatenate([after.last for _, _, after in made])
        kept, targets = self._distinct(boards, last)
        order = np.argsort(sources, kind="stable")
        slots = np.where(states.last < 0, -1, self.end_slots[states.last])
        leaving = np.unique(sources[order], return_index=True)
        grade = Grade(
            slots,
            self._of_types(slots),
            sources[order],
            leaving,
            targets[order],
            links[order],
            moves[order],
        )
        return grade, _States(boards[kept], last[kept])

    def _of_types(self, slots: Indices) -> tuple[tuple[frozenset[int], Indices], ...]:
        """Return the states of a grade by the types of their last slices' slots."""
        found: dict[frozenset[int], list[Indices]] = {}
        for slot, types in enumerate(self.roles.types):
            found.setdefault(types, []).append(np.flatnonzero(slots == slot))
        return tuple((types, np.concatenate(states)) for types, states in found.items())

    def _distinct(self, boards: Indices, last: Indices) -> tuple[Indices, Indices]:
        """Return where each distinct state is met first, and of each state which one it is."""
        bases = [self.roles.size(group) + 1 for group, _ in self.cells]
        if math.prod(bases) * len(self.ends) < 2**62:  # one number for a state
            weights = [
                math.prod(bases[index + 1 :]) * len(self.ends) for index in range(len(bases))
            ]
            keys, axis = boards @ np.array(weights) + last, None
        else:
            keys, axis = np.column_stack([boards, last]), 0
        _, kept, targets = np.unique(keys, return_index=True, return_inverse=True, axis=axis)
        return kept, targets.reshape(-1)
