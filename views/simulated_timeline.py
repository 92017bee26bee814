"""The timeline of a simulated job, as an SVG file: a lane for each rank, a bar for each step."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from rankslice.backend.runtime.job import ALL, Rank
from rankslice.exploration.simulator.simulation import Simulation
from rankslice.framework.plan import Plan
from rankslice.framework.wording import bare, digits
from rankslice.views.charts import axes
from rankslice.views.scales import Axis, Scale
from rankslice.views.svg import document, element, heading
from rankslice.views.trace_timeline import WORK, Slice, Track

_LEFT, _RIGHT, _TOP = 220, 1180, 84
"""Pixels, as all lengths."""
_LANE, _GAP = 24, 6
_MAX_LANES = 64
_MAX_NAME = 22
_MIN_NUMBERED = 18
"""Width of a bar that has room for the number of its frame."""
_COLOURS = ("#4269d0", "#e2711d", "#3a9d5d", "#a463f2", "#c2185b", "#0f8b8d", "#8a6d3b", "#5c6770")
"""Of frames, again and again; white text can be read on each."""
_STYLE = """
.grid { stroke: #e3e6ea; }
.axis { stroke: #6b7480; }
.lane { fill: #f6f7f9; }
.step { stroke: #ffffff; stroke-width: 0.6; }
.mark { stroke: #24292f; stroke-width: 1.2; stroke-dasharray: 4 3; }
.number { fill: #ffffff; text-anchor: middle; font-size: 11px; pointer-events: none; }
"""


def simulated_timeline(plan: Plan, simulation: Simulation) -> str:
    """Return the text of an SVG file with the steps that a simulation has kept."""
    tracks = [Track(rank.rank, _name(rank), WORK) for rank in plan.ranks[:_MAX_LANES]]
    slices = [*_slices(simulation, len(tracks))]
    end_ms = max((one.end_ns for one in slices), default=1_000_000) / 1e6
    across = Scale(Axis("ms"), [0.0, end_ms], _LEFT, _RIGHT, whole=True)
    bottom = _TOP + (_LANE + _GAP) * len(tracks) - _GAP
    frames = len({one.frame for one in slices})
    title = f"The first {frames} frames through {bare(plan.model.name)}"
    content = [
        *heading(title, _subtitle(simulation, len(plan.ranks) - len(tracks))),
        *(part for number, track in enumerate(tracks) for part in _lane(number, track)),
        *axes(across, bottom, _TOP - 6),
        *(part for one in slices for part in _bar(one, across)),
        *_marks(simulation, across, end_ms, bottom),
    ]
    return document(title, _RIGHT + 20, bottom + 48, content, _STYLE)


def _slices(simulation: Simulation, ranks: int) -> Iterator[Slice]:
    """Yield the steps as a trace has them; the number of a track is that of its rank."""
    for step in simulation.steps:
        if step.rank < ranks:
            name = f"segment {step.segment}{f' ({step.route})' if step.route else ''}"
            times = round(1e9 * step.begin_s), round(1e9 * step.end_s)
            yield Slice(step.rank, *times, name, step.frame, WORK)


def _subtitle(simulation: Simulation, hidden: int) -> str:
    more = f"; {hidden} more ranks are not drawn" if hidden else ""
    rate = f"{digits(simulation.throughput_fps, 4)} frames/s, " if simulation.is_steady else ""
    surge = simulation.surge_window
    window = f"window {simulation.window}{f' (for a surge {surge})' if surge else ''}"
    return f"simulated; {rate}{window}; bars have the number of their frame{more}"


def _name(rank: Rank) -> str:
    name = bare(rank.key) if rank.turns == ALL else f"{bare(rank.key)}: {rank.turns}"
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _lane(number: int, track: Track) -> Iterator[Markup]:
    y = _TOP + (_LANE + _GAP) * number
    yield element("rect", class_="lane", x=_LEFT, y=y, width=_RIGHT - _LEFT, height=_LANE)
    yield element("text", f"{track.rank} {track.name}", x=20, y=y + _LANE / 2)


def _bar(one: Slice, across: Scale) -> Iterator[Markup]:
    x, y = across.pixel(one.begin_ns / 1e6), _TOP + (_LANE + _GAP) * one.track + 2
    width = max(0.5, across.pixel(one.end_ns / 1e6) - x)
    milliseconds = f"{digits(one.begin_ns / 1e6, 4)} to {digits(one.end_ns / 1e6, 4)} ms"
    yield element(
        "rect",
        element("title", f"rank {one.track}, {one.name}, frame {one.frame}: {milliseconds}"),
        x=x,
        y=y,
        width=width,
        height=_LANE - 4,
        rx=2,
        class_="step",
        fill=_COLOURS[one.frame % len(_COLOURS)],
    )
    if width >= _MIN_NUMBERED:
        middle = x + width / 2, y + _LANE / 2 - 2
        yield element("text", f"{one.frame}", x=middle[0], y=middle[1], class_="number")


def _marks(simulation: Simulation, across: Scale, end_ms: float, bottom: float) -> Iterator[Markup]:
    for change in simulation.switches:
        if 1e3 * change.time_s <= end_ms:
            x = across.pixel(1e3 * change.time_s)
            anchor, shift = ("start", 4) if x < (_LEFT + _RIGHT) / 2 else ("end", -4)
            yield element("path", d=f"M{x} {_TOP - 18}V{bottom}", class_="mark")
            text = f"{change.route} from frame {change.frame} on"
            yield element("text", text, x=x + shift, y=_TOP - 14, text_anchor=anchor)
