"""An exploration as one HTML page: the front in projections, and what each mapping does.

The page needs nothing else, neither a network nor a server. A script of a few lines shows the
mapping that is clicked; without the script all are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankslice.exploration.objectives import OBJECTIVES, columns, rate_text
from rankslice.exploration.results.answer import (
    boards_text,
    failure_texts,
    mappings_text,
    recommended,
    tried_text,
)
from rankslice.exploration.results.charts import Chart, charts_of
from rankslice.exploration.results.records import Candidate, Exploration, Figures, RankLoad
from rankslice.framework.files.templates import render_markup
from rankslice.framework.quantities import bytes_text
from rankslice.framework.turns import ALL
from rankslice.framework.wording import joined

_LONGEST_BAR = 48
"""Per cent of the room that is there; the rest is for its text."""


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
class _Mapping:
    """All that is shown of a mapping."""

    number: int
    title: str
    standing: str
    file: str
    content: str
    bottleneck: str
    cells: tuple[str, ...]
    figures: tuple[tuple[str, tuple[str, ...]], ...]
    """What they rest on, and a cell for each figure."""
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
    charts: tuple[Chart, ...]
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
    rate, *others = (row.head for row in columns())
    predicted = [f"predicted {rate}"] if exploration.tried_by else []
    heads = ("mapping", rate, *predicted, *others, "boards", "accelerators", "figures")
    local = exploration.platform == "local"
    return _Page(
        title=f"Mappings of {exploration.model} on {exploration.platform}",
        subtitle=f"{_count(candidates)}, found by {exploration.method}.",
        model=exploration.model,
        platform_option="" if local else f" --platform {exploration.platform}",
        answer=exploration.answer,
        left_out=(*exploration.left_out, *failure_texts(exploration.failures)),
        objectives=joined(exploration.objectives),
        better=_better(exploration),
        target="" if exploration.target_fps is None else _needs(exploration.target_fps),
        charts=tuple(charts_of(exploration)),
        figure_names=(rate, *others),
        columns=heads,
        text_columns=tuple(heads.index(name) for name in ("accelerators", "figures")),
        mappings=tuple(mappings.values()),
        recommended=mappings[recommended(candidates, exploration.target_fps).number],
        notes=_notes(exploration),
    )


def _count(candidates: Sequence[Candidate]) -> str:
    front = sum(candidate.on_front for candidate in candidates)
    others = len(candidates) - front
    text = f"{mappings_text(front)} of the front"
    return f"{text} and {others} more" if others else text


def _needs(target_fps: float) -> str:
    return f"what the camera needs, {rate_text(target_fps)} frames/s"


def _better(exploration: Exploration) -> str:
    """Return in which direction of the charts mappings are better."""
    others = [OBJECTIVES[name] for name in exploration.objectives if name != "throughput"]
    larger = [row.name for row in others if row.larger_is_better]
    texts = ["to the right for throughput"]
    if larger:
        texts.append(f"up or to the right for {joined(larger)}")
    if len(larger) < len(others):
        texts.append("down or to the left for all else")
    return ", ".join(texts)


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


def _mapping(candidate: Candidate, exploration: Exploration) -> _Mapping:
    rate, *others = _cells(candidate, candidate.best_known)
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
            ", ".join(candidate.mapping),
            candidate.best_known.basis,
        ),
        figures=tuple((each.basis, _cells(candidate, each)) for each in candidate.figures),
        bars=tuple(_bars(candidate)),
    )


def _standing(candidate: Candidate, exploration: Exploration) -> str:
    objectives = joined(exploration.objectives)
    if candidate.on_front:
        return f"No other mapping that was found is at least as good in {objectives}."
    boards = len(candidate.boards)
    rates = [c.best_known.throughput_fps for c in exploration.candidates if len(c.boards) == boards]
    worse = f"nother mapping is at least as good in {objectives}."
    if candidate.best_known.throughput_fps < max(rates):
        return f"A{worse}"
    return f"The fastest found on {boards_text(boards)}; a{worse}"


def _cells(candidate: Candidate, figures: Figures) -> tuple[str, ...]:
    return tuple(
        f"{row.cell(candidate, figures, '–')}{row.basis_text(figures)}" for row in columns()
    )


def _bars(candidate: Candidate) -> Iterator[_Bar]:
    """Yield a bar for each rank, then one for what goes from rank to rank, all on one scale."""
    times = [load.busy_s for load in candidate.ranks]
    times += [load.measured_s for load in candidate.ranks if load.measured_s is not None]
    times += [traffic.seconds for traffic in candidate.traffic]
    longest = max(times, default=0) or 1.0
    slowest = max((load.load_s for load in candidate.ranks), default=0)

    def width(seconds: float) -> float:
        return round(_LONGEST_BAR * seconds / longest, 2)

    for load in candidate.ranks:
        measured = load.measured_s
        layers = f"{load.layer_count} layer{'s' if load.layer_count != 1 else ''}"
        computing = f"{_milliseconds(load.compute_s)} computing{_other(load)}"
        yield _Bar(
            load.key,
            load.accelerator,
            width(load.compute_s),
            f"{computing}, {layers}{_gpu(load)}{_turns(load)}",
            load.load_s == slowest,
            None if measured is None else f"{_milliseconds(measured)} measured",
            0.0 if measured is None else width(measured),
        )
    for traffic in candidate.traffic:
        yield _Bar(
            f"{traffic.sender} → {traffic.receiver}",
            "link",
            width(traffic.seconds),
            f"{_milliseconds(traffic.seconds)} sending {bytes_text(traffic.nbytes)}",
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


def _turns(load: RankLoad) -> str:
    return "" if load.turns == ALL else f"; frames {load.turns}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
