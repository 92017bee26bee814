"""The fewest convex pieces into which each rank's layers can be grouped.

The pieces may not depend on each other in a cycle. That is so exactly if the layers have a
topological order in which each piece is one run of neighbours; so a solution is a sequence of
*blocks*, each of one rank, that executes the whole graph, and we look for a shortest one. With
three and more ranks that is hard in general. What makes it easy for networks as they are:

* When a rank has its turn, it had better execute all of its layers that can be executed (its
  *closure*): who has done more needs no more blocks for the rest.
* Layers of a rank that wait for the same layers of other ranks are always executed together.
  The same holds backwards, for those that the same layers of other ranks wait for. So they are
  merged before the search.
* A rank whose closure cannot grow by waiting may go at once: its next block will be that one
  whenever it comes, and the others lose nothing by its coming early. Backwards again likewise.
* A layer that every other layer precedes or follows cuts the problem into two that have nothing
  to do with each other, except that they share that layer's block. Most networks are a chain of
  such small problems.

What remains is searched by A*: states are sets of layers yet to be executed, and the lower bound
adds up, for each rank, how often a single path through the rest enters that rank. If the budget
of states runs out, a beam search gives an answer that is good, but not proven to be the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

BUDGET = 10_000
"""Default number of states that the exact search expands before it gives up."""

_BEAM = 48
"""Number of states that the beam search keeps per block, at most and if the items are few."""

_BEAM_ITEMS = 20_000
"""Number of states that it keeps times the items: each state takes time in proportion to them."""

Block = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A sequence of blocks that executes every item, and how short it can be at all."""

    blocks: tuple[Block, ...]
    """Items of each block, ascending; the blocks in the order of execution."""
    bound: int
    states: int

    @property
    def minimal(self) -> bool:
        """Whether this is proven to be a shortest sequence."""
        return len(self.blocks) == self.bound


def fewest_blocks(
    ranks: Sequence[int], predecessors: Sequence[Sequence[int]], *, budget: int = BUDGET
) -> Blocks:
    """Return as few blocks of one rank each as can be found that execute all items in order.

    The answer depends on the arguments alone, never on how fast the machine is.

    Args:
        ranks: Rank of each item; the items are numbered in a topological order.
    """
    items = _Items(
        [(item,) for item in range(len(ranks))],
        ranks,
        [tuple(sorted(set(before))) for before in predecessors],
    )
    items = _without_runs(_without_runs(items).reversed()).reversed()
    return _solve(_problem(items), budget)


@dataclass(frozen=True, slots=True)
class _Items:
    """Items in a topological order, as many as a model has layers."""

    members: Sequence[Block]
    """What each item stands for: items of the caller."""
    ranks: Sequence[int]
    direct: Sequence[tuple[int, ...]]
    """Direct predecessors of each item, all of them smaller than it."""

    def reversed(self) -> _Items:
        last = len(self.ranks) - 1
        successors: list[list[int]] = [[] for _ in self.ranks]
        for item, direct in enumerate(self.direct):
            for predecessor in direct:
                successors[last - predecessor].append(last - item)
        return _Items(self.members[::-1], self.ranks[::-1], [tuple(s) for s in successors])

    def grouped(self, groups: Sequence[Sequence[int]]) -> _Items:
        """Return one item for each group of items that can be executed together."""
        group_of = {item: group for group, items in enumerate(groups) for item in items}
        needs = {
            group: sorted({group_of[p] for item in items for p in self.direct[item]} - {group})
            for group, items in enumerate(groups)
        }
        order = list(TopologicalSorter(needs).static_order())
        number = {group: new for new, group in enumerate(order)}
        return _Items(
            [tuple(sorted(m for i in groups[g] for m in self.members[i])) for g in order],
            [self.ranks[groups[group][0]] for group in order],
            [tuple(sorted(number[p] for p in needs[group])) for group in order],
        )


def _without_runs(items: _Items) -> _Items:
    """Merge each item with the one item of its rank after which it comes at once.

    These wait for the same items of other ranks, like those of a rank that wait for none. It takes
    time in proportion to the items, and leaves few for the search, whose sets grow with the square.
    """
    groups: list[list[int]] = []
    group_of: list[int] = []
    waiting_for_none: dict[int, int] = {}
    for item, (rank, direct) in enumerate(zip(items.ranks, items.direct, strict=True)):
        before = {group_of[p] for p in direct} - {waiting_for_none.get(rank)}
        foreign = any(items.ranks[p] != rank for p in direct)
        if len(before) == 1 and not foreign:
            group = before.pop()
        elif not before:
            group = waiting_for_none.setdefault(rank, len(groups))
        else:
            group = len(groups)
        if group == len(groups):
            groups.append([])
        groups[group].append(item)
        group_of.append(group)
    return items if len(groups) == len(items.ranks) else items.grouped(groups)


@dataclass(frozen=True, slots=True)
class _Problem:
    """A partial order of items; sets of items are bits of an int."""

    items: _Items
    before: tuple[int, ...]
    after: tuple[int, ...]
    of_rank: Mapping[int, int]
    """The items of each rank, by ascending rank."""

    @property
    def ranks(self) -> Sequence[int]:
        return self.items.ranks

    @property
    def everything(self) -> int:
        return (1 << len(self.ranks)) - 1

    def foreign(self, relatives: Sequence[int]) -> list[int]:
        """Return each item's predecessors (or successors) that belong to other ranks."""
        return [
            related & ~self.of_rank[rank]
            for related, rank in zip(relatives, self.ranks, strict=True)
        ]

    def block(self, items: int) -> Block:
        members = self.items.members
        return tuple(sorted(member for item in _bits(items) for member in members[item]))

    def part(self, items: int) -> _Problem:
        """Return the problem of some of the items; a path between them may not leave them."""
        kept = list(_bits(items))
        number = {item: new for new, item in enumerate(kept)}
        whole = self.items
        return _problem(
            _Items(
                [whole.members[item] for item in kept],
                [whole.ranks[item] for item in kept],
                [tuple(number[p] for p in whole.direct[i] if p in number) for i in kept],
            )
        )

    def reversed(self) -> _Problem:
        return _problem(self.items.reversed())


def _problem(items: _Items) -> _Problem:
    count = len(items.ranks)
    before, after = [0] * count, [0] * count
    of_rank = dict.fromkeys(sorted(set(items.ranks)), 0)
    for item, predecessors in enumerate(items.direct):
        of_rank[items.ranks[item]] |= 1 << item
        for predecessor in predecessors:
            before[item] |= before[predecessor] | 1 << predecessor
    for item in reversed(range(count)):
        for predecessor in items.direct[item]:
            after[predecessor] |= after[item] | 1 << item
    return _Problem(items, tuple(before), tuple(after), of_rank)


def _solve(problem: _Problem, budget: int) -> Blocks:
    """Simplify, cut at the layers that order all others, and search what is left."""
    problem = _merged(problem)
    pieces = _pieces(problem)
    if len(pieces) > 1:
        return _chained(problem, pieces, budget)
    first, rest = _peeled_off(problem)
    last, mirror = _peeled_off(rest.reversed())
    if not first and not last:
        return _searched(problem, budget)
    middle = _solve(mirror.reversed(), budget)
    blocks = (*first, *middle.blocks, *reversed(last))
    return Blocks(blocks, len(first) + middle.bound + len(last), middle.states)


def _merged(problem: _Problem) -> _Problem:
    """Merge items of a rank that can always be executed together, until none are left."""
    size = -1
    while size != len(problem.ranks):
        size = len(problem.ranks)
        problem = _merge(problem, problem.foreign(problem.before))
        problem = _merge(problem, problem.foreign(problem.after))
    return problem


def _merge(problem: _Problem, waiting: Sequence[int]) -> _Problem:
    """Make one item of those that have the same rank and the same set ``waiting``."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for item, rank in enumerate(problem.ranks):
        groups[rank, waiting[item]].append(item)
    if len(groups) == len(problem.ranks):
        return problem
    return _problem(problem.items.grouped(list(groups.values())))


def _peeled_off(problem: _Problem) -> tuple[list[Block], _Problem]:
    """Return blocks that can go first at no loss, and the problem without them."""
    search = _Search(problem)
    rest = problem.everything
    blocks = []
    while closure := search.forced(rest):
        blocks.append(problem.block(closure))
        rest &= ~closure
    return blocks, problem.part(rest) if blocks else problem


def _pieces(problem: _Problem) -> list[int]:
    """Return the items of the smaller problems into which the problem falls.

    Neighbours share the item that all others precede or follow.
    """
    last = len(problem.ranks) - 1
    pivots = [
        item
        for item in range(1, last)
        if problem.before[item].bit_count() + problem.after[item].bit_count() == last
    ]
    if not pivots:
        return [problem.everything]
    head = problem.before[pivots[0]] | 1 << pivots[0]
    tail = problem.after[pivots[-1]] | 1 << pivots[-1]
    between = [
        problem.after[low] & problem.before[high] | 1 << low | 1 << high
        for low, high in pairwise(pivots)
    ]
    return [head, *between, tail]


def _chained(problem: _Problem, pieces: Sequence[int], budget: int) -> Blocks:
    """Solve the pieces, small ones first since they share the budget, and join them."""
    solved: dict[int, Blocks] = {}
    for piece in sorted(pieces, key=lambda items: (items.bit_count(), items)):
        solved[piece] = _solve(problem.part(piece), budget)
        budget -= solved[piece].states
    blocks: list[Block] = []
    for piece in pieces:
        first, *others = solved[piece].blocks
        shared = blocks.pop() if blocks else ()
        blocks += [tuple(sorted({*shared, *first})), *others]
    bound = sum(solution.bound for solution in solved.values()) - len(pieces) + 1
    return Blocks(tuple(blocks), bound, sum(solution.states for solution in solved.values()))


def _searched(problem: _Problem, budget: int) -> Blocks:
    """Search forwards; if the budget runs out, take the better of two beam searches."""
    search = _Search(problem)
    shortest, bound, states = _best_first(search, budget)
    if shortest is not None:
        return Blocks(tuple(problem.block(block) for block in shortest), bound, states)
    forwards = tuple(problem.block(block) for block in _beam(search))
    mirror = problem.reversed()
    backwards = tuple(mirror.block(block) for block in _beam(_Search(mirror)))[::-1]
    return Blocks(min(forwards, backwards, key=len), bound, states)


class _Search:
    """What both searches ask of a problem. A state is the set of items not yet executed."""

    def __init__(self, problem: _Problem) -> None:
        self.everything = problem.everything
        self.before = problem.foreign(problem.before)
        self.after = problem.after
        self.of_rank = problem.of_rank
        self.levels = {rank: _levels(problem, rank) for rank in problem.of_rank}

    def moves(self, rest: int) -> list[tuple[int, int]]:
        """Return the blocks worth executing next, as ranks and closures: a forced one alone."""
        closures = self._closures(rest)
        forced = next((move for move in closures if self._cannot_grow(rest, *move)), None)
        return [forced] if forced else closures

    def forced(self, rest: int) -> int:
        """Return a closure that cannot grow by waiting, or no items."""
        closures = self._closures(rest)
        return next((c for rank, c in closures if self._cannot_grow(rest, rank, c)), 0)

    def _closures(self, rest: int) -> list[tuple[int, int]]:
        """Return, for each rank that has any, the items that a block of it executes."""
        closures = []
        for rank, own in self.of_rank.items():
            closure = 0
            for item in _bits(rest & own):
                if not self.before[item] & rest:
                    closure |= 1 << item
            if closure:
                closures.append((rank, closure))
        return closures

    def _cannot_grow(self, rest: int, rank: int, closure: int) -> bool:
        """Return whether all other items of the rank wait for something that the closure feeds."""
        fed = 0
        for item in _bits(closure):
            fed |= self.after[item]
        fed &= rest
        others = rest & self.of_rank[rank] & ~closure
        return all(self.before[item] & fed for item in _bits(others))

    def entered(self, rest: int, rank: int) -> int:
        """Return the largest number of times that one path through the rest enters the rank."""
        levels = self.levels[rank]
        return next((n for n in range(len(levels), 0, -1) if levels[n - 1] & rest), 0)

    def bound(self, rest: int) -> int:
        """Return a number of blocks that the rest needs at least."""
        return sum(self.entered(rest, rank) for rank in self.of_rank)


def _levels(problem: _Problem, rank: int) -> list[int]:
    """Return, for n = 1, 2, ..., the items of a rank from which a path enters the rank n times."""
    entered = [0] * len(problem.ranks)
    for item in reversed(range(len(problem.ranks))):
        own = problem.ranks[item] == rank
        entered[item] = max(entered[item], own)
        for predecessor in problem.items.direct[item]:
            again = own < (problem.ranks[predecessor] == rank)
            entered[predecessor] = max(entered[predecessor], entered[item] + again)
    levels = [0] * max(entered, default=0)
    for item in _bits(problem.of_rank[rank]):
        levels[entered[item] - 1] |= 1 << item
    return levels


def _best_first(search: _Search, budget: int) -> tuple[list[int] | None, int, int]:
    """Return the blocks of a shortest sequence, or None; a lower bound; and the states expanded.

    The bound never falls by more than the one block that a move costs, so a move leaves the
    estimate (blocks so far + bound) as it is or raises it by one: two stacks do for a queue.
    """
    start = search.everything
    bound = search.bound(start)
    came = {start: start}
    estimates = {start: bound}
    expanded: set[int] = set()
    now, later = [start], list[int]()
    while True:
        if not now:
            now, later = later, now
            bound += 1
        rest = now.pop()
        if rest in expanded:
            continue
        if not rest:
            return _trail(came, start), bound, len(expanded)
        if len(expanded) >= budget:
            return None, bound, len(expanded)
        expanded.add(rest)
        good: list[int] = []
        for rank, closure in search.moves(rest):
            left = rest & ~closure
            raised = search.entered(left, rank) == search.entered(rest, rank)
            estimate = bound + raised
            if estimate < estimates.get(left, estimate + 1):
                estimates[left] = estimate
                came[left] = rest
                (later if raised else good).append(left)
        now += sorted(good, key=lambda left: (-left.bit_count(), left))


def _beam(search: _Search) -> list[int]:
    """Return the blocks of a short sequence: per block, the most promising states go on."""
    start = search.everything
    width = max(4, min(_BEAM, _BEAM_ITEMS // start.bit_length()))
    came = {start: start}
    beam = {start: search.bound(start)}
    while 0 not in came:
        origins: dict[int, int] = {}
        bounds: dict[int, int] = {}
        for rest in reversed(beam):
            for rank, closure in search.moves(rest):
                left = rest & ~closure
                origins[left] = rest
                # A move changes what its own rank adds to the bound, and nothing else.
                saved = search.entered(rest, rank) - search.entered(left, rank)
                bounds[left] = beam[rest] - saved
        promising = sorted(bounds, key=lambda left: (bounds[left], left.bit_count(), left))
        beam = {left: bounds[left] for left in promising[:width]}
        for left in beam:
            came.setdefault(left, origins[left])
    return _trail(came, start)


def _trail(came: Mapping[int, int], start: int) -> list[int]:
    blocks = []
    rest = 0
    while rest != start:
        blocks.append(came[rest] & ~rest)
        rest = came[rest]
    return blocks[::-1]


def _bits(items: int) -> Iterator[int]:
    while items:
        low = items & -items
        yield low.bit_length() - 1
        items ^= low
