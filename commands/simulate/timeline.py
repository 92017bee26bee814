"""A picture of a simulated job: which rank computes which frame when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rankslice.backend.runtime.job import ALL, Rank
from rankslice.backend.runtime.sources.switching import Change
from rankslice.commands.simulate.simulate import Simulated
from rankslice.exploration.simulator.simulation import Step
from rankslice.framework.files.templates import render_markup
from rankslice.framework.wording import bare, digits

_LEFT, _RIGHT, _TOP = 220, 1180, 84
_LANE, _GAP = 24, 6
_MAX_LANES = 64
_MAX_NAME = 22
_MIN_NUMBERED = 18
_COLOURS = ("#4269d0", "#e2711d", "#3a9d5d", "#a463f2", "#c2185b", "#0f8b8d", "#8a6d3b", "#5c6770")
"""Of frames, again and again; white text can be read on each."""

_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class _Lane:
    y: int
    name: str


@dataclass(frozen=True, slots=True)
class _Tick:
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class _Bar:
    x: float
    y: int
    width: float
    height: int
    colour: str
    text: str
    tooltip: str


@dataclass(frozen=True, slots=True)
class _Mark:
    """A change of the route."""

    x: float
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class _Timeline:
    """All that the template draws."""

    title: str
    subtitle: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    lane_height: int
    lanes: tuple[_Lane, ...]
    ticks: tuple[_Tick, ...]
    steps: tuple[_Bar, ...]
    marks: tuple[_Mark, ...]


def timeline_of(simulated: Simulated) -> str:
    """Return the text of an SVG file: a lane for each rank, a bar for each step that was kept."""
    return render_markup("timeline.svg.j2", timeline=_timeline(simulated))


def _timeline(simulated: Simulated) -> _Timeline:
    plan, steps = simulated.plan, simulated.simulation.steps
    end_s = max((step.end_s for step in steps), default=0.0) or 1e-3
    lanes = tuple(
        _Lane(_TOP + (_LANE + _GAP) * rank.rank, f"{rank.rank} {_short(_name(rank))}")
        for rank in plan.ranks[:_MAX_LANES]
    )
    bottom = lanes[-1].y + _LANE
    frames = len({step.frame for step in steps})
    hidden = len(plan.ranks) - len(lanes)
    more = f"; {hidden} more ranks are not drawn" if hidden else ""
    simulation = simulated.simulation
    rate = f"{digits(simulation.throughput_fps, 4)} frames/s, " if simulation.is_steady else ""
    surge = simulation.surge_window
    window = f"window {simulation.window}{f' (for a surge {surge})' if surge else ''}"
    return _Timeline(
        title=f"The first {frames} frames through {bare(plan.model.name)}",
        subtitle=f"simulated; {rate}{window}; bars have the number of their frame{more}",
        width=_RIGHT + 20,
        height=bottom + 36,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=bottom,
        lane_height=_LANE,
        lanes=lanes,
        ticks=tuple(_ticks(end_s)),
        steps=tuple(_bar(step, lanes, end_s) for step in steps if step.rank < len(lanes)),
        marks=tuple(_marks(simulation.switches, end_s)),
    )


def _name(rank: Rank) -> str:
    """Return a rank's key, and which frames it handles if not all."""
    return bare(rank.key) if rank.turns == ALL else f"{bare(rank.key)}: {rank.turns}"


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _x(time_s: float, end_s: float) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * time_s / end_s, 2)


def _bar(step: Step, lanes: tuple[_Lane, ...], end_s: float) -> _Bar:
    x = _x(step.begin_s, end_s)
    width = max(0.5, _x(step.end_s, end_s) - x)
    milliseconds = f"{digits(1e3 * step.begin_s, 4)} to {digits(1e3 * step.end_s, 4)} ms"
    return _Bar(
        x=x,
        y=lanes[step.rank].y + 2,
        width=round(width, 2),
        height=_LANE - 4,
        colour=_COLOURS[step.frame % len(_COLOURS)],
        text=str(step.frame) if width >= _MIN_NUMBERED else "",
        tooltip=f"rank {step.rank}, segment {step.segment}, frame {step.frame}"
        f"{f' ({step.route})' if step.route else ''}: {milliseconds}",
    )


def _marks(switches: Iterable[Change], end_s: float) -> Iterator[_Mark]:
    """Yield the changes of the route in the time that is drawn."""
    for change in switches:
        if change.time_s <= end_s:
            x = _x(change.time_s, end_s)
            anchor = "start" if x < (_LEFT + _RIGHT) / 2 else "end"
            yield _Mark(x, f"{change.route} from frame {change.frame} on", anchor)


def _ticks(end_s: float) -> list[_Tick]:
    """Return about eight times at round numbers of milliseconds."""
    end_ms = 1e3 * end_s
    power = 10 ** math.floor(math.log10(end_ms / 8))
    step = next((s * power for s in _STEPS if end_ms / (s * power) <= 9), 10 * power)
    count = math.floor(end_ms / step)
    return [_Tick(_x(n * step / 1e3, end_s), f"{n * step:g} ms") for n in range(count + 1)]
