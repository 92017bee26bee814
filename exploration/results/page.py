"""An exploration as one HTML page: the front in projections, and what each mapping does.

The page needs nothing else, neither a network nor a server. Charts are drawn here; a script of a
few lines shows the mapping that is clicked, and without it all are shown.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rankslice.exploration.results.answer import (
    boards_text,
    failure_texts,
    mappings_text,
    objectives_text,
    rate_text,
    recommended,
    tried_text,
)
from rankslice.exploration.results.records import Candidate, Exploration, Figures, RankLoad
from rankslice.framework.files.templates import render_markup
from rankslice.framework.quantities import bytes_text, joules_text

__all__ = ["page_of"]

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 444, 26, 268
_MAX_TICKS = 6
_MARGIN = 0.06
_LONGEST_BAR = 48
"""Per cent of the room that is there; the rest is for its text."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One figure of a mapping, as it is drawn."""

    name: str
    label: str
    value: Callable[[Figures], float | None]
    text: Callable[[float], str]
    larger_is_better: bool = False


def _megabytes(figures: Figures) -> float | None:
    return None if figures.memory_bytes is None else figures.memory_bytes / 1e6


_AXES = {
    "throughput": _Axis(
        "throughput",
        "throughput, frames/s",
        lambda figures: figures.throughput_fps,
        lambda value: f"{rate_text(value)} frames/s",
        larger_is_better=True,
    ),
    "energy": _Axis(
        "energy",
        "worst energy per board, J per frame",
        lambda figures: figures.energy_j,
        joules_text,
    ),
    "memory": _Axis(
        "memory",
        "worst memory per board, MB",
        _megabytes,
        lambda value: bytes_text(round(value * 1e6)),
    ),
    "latency": _Axis(
        "latency",
        "latency, ms",
        lambda figures: 1e3 * figures.latency_s,
        lambda value: f"{value:.3g} ms",
    ),
}


@dataclass(frozen=True, slots=True)
class _Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class _Point:
    number: int
    x: float
    y: float
    on_front: bool
    label: str

    @property
    def number_y(self) -> float:
        """Where the number stands: above the point, or below where the axis is labelled above."""
        return round(self.y + (21 if self.y < _TOP + 24 else -13), 1)


@dataclass(frozen=True, slots=True)
class _Chart:
    """One projection of the front; all lengths are pixels."""

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[_Tick, ...]
    y_ticks: tuple[_Tick, ...]
    points: tuple[_Point, ...]
    target: float | None
    """Where the wanted rate is on the horizontal axis."""
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM


@dataclass(frozen=True, slots=True)
class _Bar:
    """The time of a rank or of what a board sends."""

    name: str
    kind: str
    width: float
    """Per cent of the widest possible."""
    text: str
    slowest: bool
    measured: str | None
    measured_width: float


@dataclass(frozen=True, slots=True)
class _FiguresRow:
    source: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Mapping:
    """All that is shown of a mapping."""

    number: int
    title: str
    standing: str
    file: str
    content: str
    bottleneck: str
    cells: tuple[str, ...]
    figures: tuple[_FiguresRow, ...]
    bars: tuple[_Bar, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    """All that the template fills in; its texts are still to be escaped."""

    title: str
    subtitle: str
    model: str
    platform_option: str
    answer: tuple[str, ...]
    left_out: tuple[str, ...]
    objectives: str
    better: str
    target: str
    charts: tuple[_Chart, ...]
    figure_names: tuple[str, ...]
    columns: tuple[str, ...]
    text_columns: tuple[int, ...]
    mappings: tuple[_Mapping, ...]
    """By number."""
    recommended: _Mapping
    notes: tuple[str, ...]


def page_of(exploration: Exploration) -> str:
    """Return an exploration as an HTML document; the same bytes for the same exploration."""
    return render_markup("exploration.html.j2", page=_page(exploration))


def _page(exploration: Exploration) -> _Page:
    candidates = exploration.candidates
    mappings = {candidate.number: _mapping(candidate, exploration) for candidate in candidates}
    columns = _columns(exploration)
    local = exploration.platform == "local"
    return _Page(
        title=f"Mappings of {exploration.model} on {exploration.platform}",
        subtitle=f"{_count(candidates)}, found by {exploration.method}.",
        model=exploration.model,
        platform_option="" if local else f" --platform {exploration.platform}",
        answer=exploration.answer,
        left_out=(*exploration.left_out, *failure_texts(exploration.failures)),
        objectives=objectives_text(exploration.objectives),
        better=_better(exploration),
        target="" if exploration.target_fps is None else _needs(exploration.target_fps),
        charts=tuple(_charts(exploration)),
        figure_names=("frames/s", "latency", "memory", "energy"),
        columns=columns,
        text_columns=tuple(columns.index(name) for name in ("accelerators", "figures")),
        mappings=tuple(mappings.values()),
        recommended=mappings[recommended(candidates, exploration.target_fps).number],
        notes=_notes(exploration),
    )


def _columns(exploration: Exploration) -> tuple[str, ...]:
    """Return the heads of the table of all mappings."""
    predicted = ["predicted frames/s"] if exploration.tried_by else []
    others = ("latency", "memory", "energy", "boards", "accelerators", "figures")
    return ("mapping", "frames/s", *predicted, *others)


def _count(candidates: Sequence[Candidate]) -> str:
    front = sum(candidate.on_front for candidate in candidates)
    others = len(candidates) - front
    text = f"{mappings_text(front)} of the front"
    return f"{text} and {others} more" if others else text


def _needs(target_fps: float) -> str:
    return f"what the camera needs, {rate_text(target_fps)} frames/s"


def _better(exploration: Exploration) -> str:
    words = {True: "to the right for throughput", False: "down or to the left for all else"}
    return ", ".join(words.values()) if len(exploration.objectives) > 1 else words[True]


def _notes(exploration: Exploration) -> tuple[str, ...]:
    return (
        f"{mappings_text(exploration.evaluations)}"
        f" {'was' if exploration.evaluations == 1 else 'were'} evaluated by the cost model, with"
        f" times from {exploration.profile}.",
        *([tried_text(exploration)] if exploration.tried_by else []),
        "Memory and energy are those of the board that needs most; energy is per frame, with"
        " what the board draws at rest."
        " A figure that is not known is shown as a dash.",
        "Latency is predicted for a frame that is alone; simulated and measured it is the median in"
        " a full pipeline, where frames also wait.",
        "front.json and front.csv hold the same figures.",
    )


def _charts(exploration: Exploration) -> Iterator[_Chart]:
    """Yield a projection for each two objectives; throughput is always shown."""
    names = list(dict.fromkeys(("throughput", *exploration.objectives)))
    if len(names) < 2:
        names.append("latency")
    for x, y in itertools.combinations([_AXES[name] for name in names], 2):
        yield _chart(x, y, exploration)


def _chart(x: _Axis, y: _Axis, exploration: Exploration) -> _Chart:
    values = [
        (candidate, horizontal, vertical)
        for candidate in exploration.candidates
        if (horizontal := x.value(candidate.best_known)) is not None
        if (vertical := y.value(candidate.best_known)) is not None
    ]
    wanted = exploration.target_fps if x.name == "throughput" else None
    x_low, x_high, x_values = _scale([v[1] for v in values], wanted)
    y_low, y_high, y_values = _scale([v[2] for v in values], None)

    def across(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (value - x_low) / (x_high - x_low), 1)

    def down(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * (value - y_low) / (y_high - y_low), 1)

    return _Chart(
        title=f"{x.name.capitalize()} and {y.name}",
        x_label=x.label,
        y_label=y.label,
        x_ticks=tuple(_Tick(across(value), f"{value:g}") for value in x_values),
        y_ticks=tuple(_Tick(down(value), f"{value:g}") for value in y_values),
        points=tuple(
            _Point(
                candidate.number,
                across(horizontal),
                down(vertical),
                candidate.on_front,
                _label(candidate, (x.text(horizontal), y.text(vertical))),
            )
            # Those of the front lie on top.
            for candidate, horizontal, vertical in sorted(values, key=lambda v: v[0].on_front)
        ),
        target=None if wanted is None else across(wanted),
    )


def _label(candidate: Candidate, texts: Iterable[str]) -> str:
    return ", ".join((f"mapping {candidate.number}: {boards_text(len(candidate.boards))}", *texts))


def _scale(values: Sequence[float], wanted: float | None) -> tuple[float, float, tuple[float, ...]]:
    """Return the ends of an axis and the round values on it."""
    shown = [*values, *([] if wanted is None else [wanted])] or [0.0, 1.0]
    low, high = min(shown), max(shown)
    room = (high - low) * _MARGIN or abs(high) * 0.1 or 1.0
    # An axis begins at zero unless that would press all points together.
    low = 0.0 if low < 0.5 * high else low - room
    high += room
    step = _round_step((high - low) / _MAX_TICKS)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return low, high, tuple(round(number * step, 12) for number in range(first, last + 1))


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is no less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999)


def _mapping(candidate: Candidate, exploration: Exploration) -> _Mapping:
    rate, *others = _cells(candidate.best_known)
    predicted = [rate_text(candidate.figures[0].throughput_fps)] if exploration.tried_by else []
    return _Mapping(
        number=candidate.number,
        title=f"{rate_text(candidate.best_known.throughput_fps)} frames/s on"
        f" {boards_text(len(candidate.boards))}",
        standing=_standing(candidate, exploration),
        file=candidate.file,
        content=json.dumps(candidate.mapping, indent=1, ensure_ascii=False),
        bottleneck=candidate.bottleneck,
        cells=(
            rate,
            *predicted,
            *others,
            str(len(candidate.boards)),
            ", ".join(load.key for load in candidate.ranks),
            candidate.best_known.source,
        ),
        figures=tuple(_FiguresRow(each.source, _cells(each)) for each in candidate.figures),
        bars=tuple(_bars(candidate)),
    )


def _standing(candidate: Candidate, exploration: Exploration) -> str:
    objectives = objectives_text(exploration.objectives)
    if candidate.on_front:
        return f"No other mapping that was found is at least as good in {objectives}."
    boards = len(candidate.boards)
    rates = [c.best_known.throughput_fps for c in exploration.candidates if len(c.boards) == boards]
    worse = f"nother mapping is at least as good in {objectives}."
    if candidate.best_known.throughput_fps < max(rates):
        return f"A{worse}"
    return f"The fastest found on {boards_text(boards)}; a{worse}"


def _cells(figures: Figures) -> tuple[str, str, str, str]:
    energy = "–"
    if figures.energy_j is not None:
        energy = f"{joules_text(figures.energy_j)} ({figures.energy_source})"
    return (
        rate_text(figures.throughput_fps),
        f"{1e3 * figures.latency_s:.3g} ms",
        "–" if figures.memory_bytes is None else bytes_text(figures.memory_bytes),
        energy,
    )


def _bars(candidate: Candidate) -> Iterator[_Bar]:
    """Yield a bar for each rank, then one for each channel, all on one scale."""
    times = [load.busy_s for load in candidate.ranks]
    times += [load.measured_s for load in candidate.ranks if load.measured_s is not None]
    times += [channel.seconds for channel in candidate.channels]
    longest = max(times, default=0) or 1.0
    slowest = max((load.busy_s for load in candidate.ranks), default=0)

    def width(seconds: float) -> float:
        return round(_LONGEST_BAR * seconds / longest, 2)

    for load in candidate.ranks:
        measured = load.measured_s
        layers = f"{load.layer_count} layer{'s' if load.layer_count != 1 else ''}"
        yield _Bar(
            load.key,
            load.accelerator,
            width(load.compute_s),
            f"{_milliseconds(load.compute_s)} computing{_other(load)}, {layers}{_gpu(load)}",
            load.busy_s == slowest,
            None if measured is None else f"{_milliseconds(measured)} measured",
            0.0 if measured is None else width(measured),
        )
    for channel in candidate.channels:
        yield _Bar(
            f"{channel.source} → {channel.destination}",
            "link",
            width(channel.seconds),
            f"{_milliseconds(channel.seconds)} sending {bytes_text(channel.nbytes)}",
            False,
            None,
            0.0,
        )


def _other(load: RankLoad) -> str:
    """Tell how long a rank is busy besides computing, if it is."""
    other_s = load.busy_s - load.compute_s
    return f" and {_milliseconds(other_s)} with messages" if other_s > 0 else ""


def _gpu(load: RankLoad) -> str:
    return "" if load.gpu_bytes is None else f", {bytes_text(load.gpu_bytes)} of the GPU"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
