"""Mappings that a search begins with: contiguous slices, planned or balanced by layer times.

:func:`planned_mappings` takes them as they are, without a search for better ones: within seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.planner.optimal import Objective
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate, candidates_of
from rankslice.exploration.results.front import Assignment, Population
from rankslice.exploration.search.planned import (
    ContiguousPlan,
    ContiguousPlanner,
    without_shared_cores,
)
from rankslice.exploration.search.space import scorer

_HALVINGS = 40

_MAX_SUBSETS = 32
"""Sets of boards that are planned for, one by one."""

_LIMITS = 8
"""Steps between the least and the greatest value of an objective that is held down."""

_SWEPT: tuple[Objective, ...] = ("energy", "latency")
"""What the planner minimises at a rate."""


def balanced_seeds(problem: Problem) -> Population:
    """Return (n, layers) mappings of contiguous slices, balanced by the times of single layers.

    Devices are taken board by board, fastest first, and kind by kind; of each of these orders the
    first one, the first two and so on.
    """
    rows = [
        row
        for order in _orders(problem)
        for count in range(1, len(order) + 1)
        if (row := balanced(problem, order[:count])) is not None
    ]
    seeds = np.array(rows, np.int64).reshape(-1, len(problem.layers))
    return np.unique(seeds, axis=0)


def _orders(problem: Problem) -> Iterator[list[int]]:
    kinds = problem.device_kinds
    can_run = np.isfinite(problem.times_s)
    # By the layers that it can run, so that one strange layer does not put a GPU last.
    speed = [
        np.mean(times[can]) if can.any() else np.inf
        for times, can in zip(problem.times_s, can_run, strict=True)
    ]
    everywhere = range(len(problem.devices))
    yield sorted(
        everywhere, key=lambda device: (problem.device_boards[device], speed[kinds[device]])
    )
    yield sorted(everywhere, key=lambda device: (speed[kinds[device]], device))
    for kind in range(len(problem.times_s)):
        yield [device for device in everywhere if kinds[device] == kind]
    for device in everywhere:
        yield [device]


def balanced(problem: Problem, devices: list[int]) -> Assignment | None:
    """Return (layers,) contiguous slices on devices in that order, the longest as short as it goes.

    Channels count as nothing. ``None``: a device cannot run what would be its own.
    """
    times = problem.times_s[problem.device_kinds[devices]]
    sums = np.pad(np.cumsum(times, axis=1), ((0, 0), (1, 0)))
    if not np.isfinite(sums).all():
        return None
    low, high = 0.0, float(sums[:, -1].min())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _ends(sums, middle)[-1] < len(problem.layers):
            low = middle
        else:
            high = middle
    ends = _ends(sums, high)
    slices = np.searchsorted(ends, np.arange(len(problem.layers)), side="right")
    return np.array(devices, np.int64)[np.minimum(slices, len(devices) - 1)]


def _ends(sums: NDArray[np.float64], most_s: float) -> list[int]:
    """Return where each slice ends if it takes as many layers as fit into a time."""
    end = 0
    ends = []
    for row in sums:
        end = int(np.searchsorted(row, row[end] + most_s * (1 + 1e-12), side="right")) - 1
        ends.append(end)
    return ends


def planned_seeds(problem: Problem) -> Population:
    """Return (n, layers): the fastest contiguous plans, for each set of different boards."""
    planner = ContiguousPlanner(problem)
    rows = list(_assignments(planner.plan(devices) for devices in device_sets(problem)))
    return np.array(rows, np.int64).reshape(-1, len(problem.layers))


def _assignments(plans: Iterable[ContiguousPlan | None]) -> Iterator[Assignment]:
    return (plan.assignment for plan in plans if plan is not None)


def device_sets(problem: Problem) -> Iterator[list[int]]:
    """Yield sets of devices worth a plan: all of each set of different boards; then of one kind.

    Of boards that are alike only how many there are counts. Where that makes too many sets, the
    first board, the first two and so on are taken.
    """
    subsets = list(_board_sets(problem))
    numbered = list(enumerate(problem.devices))
    for boards in subsets:
        chosen = [number for number, device in numbered if device.board in boards]
        yield without_shared_cores(problem, chosen)
    kinds = len(problem.times_s)
    for boards, kind in itertools.product((subsets[0], subsets[-1]), range(kinds)):
        alike = [n for n, device in numbered if device.board in boards and device.kind == kind]
        if alike and kinds > 1:
            yield without_shared_cores(problem, alike)


def _board_sets(problem: Problem) -> Iterator[frozenset[int]]:
    classes: dict[object, list[int]] = {}
    for board in range(len(problem.boards)):
        classes.setdefault(_likeness(problem, board), []).append(board)
    counts = [range(len(boards) + 1) for boards in classes.values()]
    if math.prod(map(len, counts)) > _MAX_SUBSETS:
        for count in range(1, len(problem.boards) + 1):
            yield frozenset(range(count))
        return
    for chosen in sorted(itertools.product(*counts), key=sum):
        if any(chosen):
            yield frozenset(
                board
                for boards, count in zip(classes.values(), chosen, strict=True)
                for board in boards[:count]
            )


def _likeness(problem: Problem, board: int) -> object:
    kinds = tuple(sorted(device.kind for device in problem.devices if device.board == board))
    tables = problem.bandwidth_bytes_s, problem.wire_shares
    links = zip(*(np.delete(table[board], board).tolist() for table in tables), strict=True)
    return replace(problem.boards[board], name=""), kinds, tuple(sorted(links))


def planned_sweep(
    problem: Problem, objectives: Sequence[str], floor_fps: float = 0.0
) -> Iterator[Assignment]:
    """Yield plans spread over the objectives, (layers,) each.

    These are the fastest of each set of boards, and those of the least energy at the rate of
    special interest; then, of all boards, those of the least latency and energy that still reach a
    rate, and the fastest within a limit of memory, for rates and limits between the least and the
    greatest (the epsilon-constraint method).

    Args:
        objectives: which of ``energy``, ``memory`` and ``latency`` matter.
    """
    planner = ContiguousPlanner(problem)
    fastest = planned_seeds(problem)
    yield from fastest
    if not len(fastest):
        return
    floors = _floors(evaluate(problem, fastest, latency=False).bottleneck_s)
    floors += [floor_fps] if floor_fps else []
    wanted = [name for name in _SWEPT if name in objectives]
    if floor_fps and "energy" in wanted:
        sets = device_sets(problem)
        yield from _assignments(planner.plan(devices, "energy", floor_fps) for devices in sets)
    yield from _assignments(
        planner.plan(planner.devices, objective, floor)
        for objective, floor in itertools.product(wanted, floors)
    )
    if "memory" in objectives:
        yield from _within_memory(planner, fastest)


def _floors(bottlenecks_s: NDArray[np.float64]) -> list[float]:
    """Return rates up to the fastest one; what takes no time at all reaches any rate."""
    known = bottlenecks_s[np.isfinite(bottlenecks_s) & (bottlenecks_s > 0)]
    fastest = 1 / float(known.min()) if known.size else 1.0
    return [float(step) for step in np.linspace(0, fastest, _LIMITS + 1)[1:]]


def _within_memory(planner: ContiguousPlanner, fastest: Population) -> Iterator[Assignment]:
    """Yield the fastest plans within less and less memory per board, until there is none."""
    costs = evaluate(planner.problem, fastest, latency=False)
    start = most = float(costs.memory_bytes.max())
    lower = 0.0
    for _ in range(_LIMITS):  # first find what is the least that will do
        middle = (lower + most) / 2
        plan = planner.plan(planner.devices, most_bytes=middle)
        yield from _assignments([plan])
        lower, most = (middle, most) if plan is None else (lower, middle)
    limits = np.linspace(most, start, _LIMITS + 2)[1:-1].tolist()
    yield from _assignments(planner.plan(planner.devices, most_bytes=limit) for limit in limits)


def planned_mappings(problem: Problem, board: str | None = None) -> tuple[Candidate, ...]:
    """Return mappings of contiguous slices that can run, the fastest first.

    They are the planner's fastest one, and slices balanced by layers' times; if none of them can
    run, the planner's for each set of boards.

    Args:
        board: name of a board that they have to use; ``None``: there is none.
    """
    for rows in _populations(problem):
        possible = rows[scorer(problem, ("throughput",))(rows).excess <= 0]
        candidates = candidates_of(problem, [(row, True) for row in possible])
        wanted = tuple(
            candidate for candidate in candidates if board is None or board in candidate.boards
        )
        if wanted:
            return wanted
    return ()


def _populations(problem: Problem) -> Iterator[Population]:
    planner = ContiguousPlanner(problem)
    plan = planner.plan(planner.devices)
    first = balanced_seeds(problem)
    if plan is not None:
        first = np.concatenate([plan.assignment[np.newaxis], first])
    yield np.unique(first, axis=0)
    yield np.unique(planned_seeds(problem), axis=0)
