"""How a model scales: the fastest mapping on each number of equal boards, owned or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import ScalingPoint
from rankslice.exploration.search.methods import find_mappings
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.platform import Link, Platform

GIGABIT = Link(1000.0, 0.2)
"""Between copies of a board whose platform file has no default link."""


def copies(platform: Platform, like: str, count: int) -> Platform:
    """Return a platform of so many boards like one of another platform.

    The first copy has the board's own name, so measurements of it stand for all.

    Raises:
        RankSliceError: the platform has no such board.
    """
    boards = {board.name: board for board in platform.boards}
    name = like or platform.boards[0].name
    if name not in boards:
        expected = nearest(name, boards) or f"it has {', '.join(boards)}"
        raise RankSliceError(Mistake("--like", f"no board {name!r} in {platform.name}", expected))
    board = boards[name]
    others = (f"{name}-{number}" for number in range(2, count + 1))
    return Platform(
        f"{count} boards like {name}",
        (board, *(replace(board, name=other, host=other) for other in others)),
        platform.default_link or GIGABIT,
    )


def scaling(
    platform: Platform,
    problem_on: Callable[[Platform], Problem],
    options: SearchOptions,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> tuple[ScalingPoint, ...]:
    """Return the fastest mapping for each number of boards that the options name.

    Numbers on which no mapping can run, for want of memory, are left out.
    """
    assert options.scaling is not None
    first, last = options.scaling
    wanted = replace(options, objectives=("throughput",), evaluate="model", keep=1)
    points = []
    for number in range(first, last + 1):
        on_progress("numbers of boards", number - first, last - first + 1)
        problem = problem_on(copies(platform, options.like, number))
        found = find_mappings(problem, ("throughput",), wanted).candidates
        points += [ScalingPoint(number, found[0])] if found else []
    on_progress("numbers of boards", last - first + 1, last - first + 1)
    return tuple(points)
