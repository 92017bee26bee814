"""The first frames of a job as text: a grid of steps and ranks, as the simulator has it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from rankslice.backend.runtime.figures.events import COMPUTE
from rankslice.backend.runtime.job import ALL, Turns
from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.exploration.problem.runtime_costs import LinkSpeeds
from rankslice.exploration.simulator.simulator import Times, simulate
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Platform

_WIDTH = 88
_ROWS = 24
_MAX_FRAMES = 400
"""That are simulated; what repeats later is not said to."""
_MAX_FRAMES_IN_TURN = 1600
"""Further ones, where ranks take turns."""
_LINKS = LinkSpeeds(Platform("", ()), wake_up_s=0.0)
"""Messages take no time, so that all times are whole steps, and repeat. Even so, a rank that ends a
step has chosen the next one when it sees what others have made in the same step."""


def schedule(plan: Plan) -> str:
    """Return which rank computes which frame in which step, until the steps repeat.

    The text is ASCII, has no word of the plan's own, and does not end in a line break.
    """
    has_several = any(len(_ranks(route)) < len(route.segments) for route in plan.routes)
    cell = "{}:f{}" if has_several else "f{1}"
    sample = f"{cell.format(1, 3)} is frame 3{' in segment 1 of the rank' * has_several}"
    heading = "The first frames, if a segment takes one step and messages take hardly any time.\n"
    if any(rank.turns != ALL for route in plan.routes for rank in route.ranks):
        heading += "Of ranks in turn, one that handles a third of the frames takes three steps.\n"
    heading += f"In a cell, {sample}; a frame under out is a result."
    grids = [_of_route(route, cell) for route in plan.routes]
    if len(grids) > 1:
        names = ("On the usual route:", "On the second route:")
        grids = [f"{name}\n\n{grid}" for name, grid in zip(names, grids, strict=True)]
    return "\n\n".join([heading, *grids])


def _ranks(route: Plan) -> list[int]:
    return sorted({segment.rank for segment in route.segments})


class _Step(NamedTuple):
    computed: dict[int, tuple[int, int]]
    """By rank: the index of its segment, and the frame."""
    completed: list[int]
    """Frames that leave at the end of the step."""

    @property
    def frames(self) -> set[int]:
        return {frame for _, frame in self.computed.values()}

    def relative_to(self, frame: int) -> Any:
        computed = {rank: (index, n - frame) for rank, (index, n) in self.computed.items()}
        return computed, [n - frame for n in self.completed]


def _of_route(route: Plan, cell: str) -> str:
    """Return a route's grid; ``cell`` has places for a segment and a frame."""
    ranks, steps = _ranks(route), _steps(route)
    repetition = _repetition(steps)
    begin, period = repetition or (len(steps), 0)
    shown = [_row(step, ranks, cell) for step in steps[: min(begin + period, _ROWS)]]
    lines = list(_grid(ranks, shown))
    if len(shown) < begin + period:
        lines.append("  ...")
    if repetition is not None:
        completed = sum(len(step.completed) for step in steps[begin : begin + period])
        text = f"Steps {begin} to {begin + period - 1} repeat: {frames_text(completed)}"
        text += f" in {period} steps."
        if period == 1:
            text = f"All further steps are like step {begin}: {frames_text(completed)} in each."
        lines += ["", text]
    return "\n".join(lines)


def _row(step: _Step, ranks: Sequence[int], cell: str) -> list[str]:
    cells = {rank: cell.format(*running) for rank, running in step.computed.items()}
    out = " ".join(f"f{frame}" for frame in step.completed)
    return [*(cells.get(rank, ".") for rank in ranks), out]


def _steps(route: Plan) -> list[_Step]:
    """Return what happens while there are always frames that may enter."""
    period = math.lcm(*(rank.turns.period for rank in route.ranks))
    some = min(_MAX_FRAMES, 5 * route.job.window + 56) + min(_MAX_FRAMES_IN_TURN, 12 * period)
    frames = route.job.window + some
    times = [_steps_of(route.ranks[segment.rank].turns) for segment in route.segments]
    simulation = simulate(route, times, _LINKS, frames=frames, traced=frames)
    steps = [_Step({}, []) for _ in range(round(simulation.duration_s) + 1)]
    for rank in simulation.trace.ranks:
        for event in rank.of(COMPUTE):
            for number in range(round(1e-9 * event["begin_ns"]), round(1e-9 * event["end_ns"])):
                steps[number].computed[rank.rank] = int(event["number"]), int(event["frame"])
    for frame, completed_s in enumerate(simulation.completed_s):
        steps[max(0, round(completed_s) - 1)].completed.append(frame)
    # Until this frame begins, those that are inside, or have left, are not all that come.
    last = frames - 1 - route.job.window
    return steps[: next(n for n, step in enumerate(steps) if last in step.frames)]


def _steps_of(turns: Turns) -> Times:
    """Return how long a rank takes for frames, by number, so that it keeps up with the others."""
    share = len(turns.positions)
    times = np.ones(turns.period)
    times[[*turns.positions]] = np.diff(np.arange(share + 1) * turns.period // share)
    return times


def _repetition(steps: Sequence[_Step]) -> tuple[int, int] | None:
    """Return from which step on they repeat, and how many there are until then."""
    out = list(accumulate((len(step.completed) for step in steps), initial=0))

    def is_like(one: int, other: int) -> bool:
        return bool(steps[one].relative_to(out[one]) == steps[other].relative_to(out[other]))

    last = len(steps) - 1
    for period in range(1, len(steps) // 3 + 1):
        begin = last - period + 1
        while begin and is_like(begin - 1, begin - 1 + period):
            begin -= 1
        if begin + 2 * period <= last:
            return begin, period
    return None


def _grid(ranks: Sequence[int], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: a step each, a rank per column as far as there is room."""
    rows = [["step", *(f"rank {rank}" for rank in ranks), "out"]]
    rows += [[str(step), *row] for step, row in enumerate(cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = _WIDTH - widths[-1]
    shown = sum(ends <= room for ends in accumulate(width + 2 for width in widths[:-1]))
    for row in rows:
        texts = (text.ljust(width) for text, width in zip(row[1:shown], widths[1:], strict=False))
        yield "  ".join(["", row[0].rjust(widths[0]), *texts, row[-1]]).rstrip()
    if shown <= len(ranks):
        yield f"  (ranks {ranks[shown - 1]} to {ranks[-1]} are left out)"
