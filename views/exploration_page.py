"""An exploration as one HTML page: the front in projections, and what each mapping does.

A script of a few lines shows the mapping that is clicked; without the script all are shown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from rankslice.backend.runtime.job import ALL
from rankslice.exploration.objectives import OBJECTIVES, Objective, columns, rate_text
from rankslice.exploration.results.answer import (
    boards_text,
    failure_texts,
    mappings_text,
    recommended,
    tried_text,
)
from rankslice.exploration.results.candidates import (
    Candidate,
    Exploration,
    Figures,
    ScalingPoint,
)
from rankslice.framework.files.templates import render_markup, template_text
from rankslice.framework.wording import bytes_text, digits, joined
from rankslice.views.charts import LEFT, RIGHT, WIDTH, Axis, Point, Scale, Series, axes, line_figure
from rankslice.views.content import UNKNOWN, Figure, Html, Notice, Page, Section, Table
from rankslice.views.page import page_html
from rankslice.views.svg import element, picture

_TOP, _BOTTOM = 26, 260
"""Of the plot of a projection, in pixels."""


def page_of(exploration: Exploration) -> str:
    """Return an exploration as an HTML document; the same bytes for the same exploration."""
    chosen = recommended(exploration.candidates, exploration.target_fps).number
    left_out = (*exploration.left_out, *failure_texts(exploration.failures))
    notices = (Notice("Answer", exploration.answer), Notice("Left out", left_out, "warning"))
    sections = (
        Section("", parts=notices),
        *([_scaling(exploration)] if exploration.scaling else []),
        *([_strategies(exploration)] if exploration.strategies else []),
        _front(exploration, chosen),
        Section("The chosen mapping", parts=(_details(exploration, chosen),)),
        Section("All mappings", parts=(_table(exploration, chosen),)),
        Section("How this was found", _notes(exploration)),
    )
    title = f"Mappings of {exploration.model} on {exploration.platform}"
    subtitle = f"{_count(exploration.candidates)}, found by {exploration.method}."
    return page_html(Page(title, subtitle, sections))


def _scaling(exploration: Exploration) -> Section:
    points = exploration.scaling
    text = (
        "All boards are like the measured one, and linked alike. A rate stops growing where a layer"
        " or a link limits it, which more boards do not change."
    )
    return Section("Scaling", (text,), (scaling_table(points), *scaling_figures(points)))


def scaling_table(points: Sequence[ScalingPoint]) -> Table:
    """Return a row for each number of boards; speed-ups are to the first one."""
    head = ("boards", *(row.head for row in columns()), "speed-up", "used", "limited by")
    first = points[0].candidate.best_known.throughput_fps if points else 1.0
    rows = []
    for point in points:
        figures = point.candidate.best_known
        rows.append(
            (
                str(point.boards),
                *(row.cell(point.candidate, figures, UNKNOWN) for row in columns()),
                f"{figures.throughput_fps / first:.2f}",
                str(len(point.candidate.boards)),
                point.candidate.bottleneck,
            )
        )
    caption = (
        "the fastest mapping on each number of boards; memory and energy: of the board that"
        " needs most"
    )
    return Table(caption, head, tuple(rows))


def _strategies(exploration: Exploration) -> Section:
    text = (
        "Rows and outputs split layers: each part computes a part of their results. Numbers in"
        " parentheses are those of mappings. Latency is that of a frame that is alone, unless"
        " mappings were simulated or run."
    )
    return Section("Strategies", (text,), (strategies_table(exploration),))


def strategies_table(exploration: Exploration) -> Table:
    """Return a row for each strategy: its best value of each objective, and of which mapping."""
    by_number = {candidate.number: candidate for candidate in exploration.candidates}
    rows = []
    for strategy in exploration.strategies:
        cells = [strategy.name]
        for row in columns():
            best = by_number.get(strategy.best.get(row.name, 0))
            value = UNKNOWN if best is None else row.cell(best, best.best_known, UNKNOWN)
            number = "" if best is None else f" ({best.number})"
            cells.append(f"{value}{number}{' *' if row.name in strategy.wins else ''}")
        rows.append(tuple(cells))
    caption = "the best mapping of each strategy by each objective; *: no strategy is better"
    return Table(caption, ("strategy", *(row.head for row in columns())), tuple(rows))


def scaling_figures(points: Sequence[ScalingPoint]) -> Iterator[Figure]:
    """Yield a chart for each figure that is known."""
    for row in columns():
        known = []
        for point in points:
            value = row.value(point.candidate, point.candidate.best_known)
            if value is not None:
                known.append(Point(point.boards, row.axis.convert(value)))
        if len(known) > 1:
            series = Series(row.name, tuple(known))
            yield line_figure(row.name.capitalize(), [series], Axis("boards"), Axis(row.axis.name))


def _front(exploration: Exploration, chosen: int) -> Section:
    fps = exploration.target_fps
    legend = render_markup(
        "front_legend.html.j2",
        objectives=joined(exploration.objectives),
        target="" if fps is None else f"what the camera needs, {rate_text(fps)} frames/s",
    )
    about = "Each point is a mapping; choose one to see what it does."
    text = f"{about} Better is {_better(exploration)}."
    return Section("The Pareto front", (text,), (Html(legend), *_projections(exploration, chosen)))


def _projections(exploration: Exploration, chosen: int) -> Iterator[Figure]:
    names = list(dict.fromkeys(("throughput", *exploration.objectives)))
    if len(names) < 2:
        names.append("latency")
    for x, y in itertools.combinations([OBJECTIVES[name] for name in names], 2):
        yield _projection(x, y, exploration, chosen)


def _projection(x: Objective, y: Objective, exploration: Exploration, chosen: int) -> Figure:
    # Those of the front lie on top.
    candidates = sorted(exploration.candidates, key=lambda candidate: candidate.on_front)
    shown = []
    for candidate in candidates:
        figures = candidate.best_known
        values = x.value(candidate, figures), y.value(candidate, figures)
        if values[0] is not None and values[1] is not None:
            place = x.axis.convert(values[0]), y.axis.convert(values[1])
            boards = boards_text(len(candidate.boards))
            texts = (boards, x.full_text(values[0]), y.full_text(values[1]))
            shown.append((candidate, place, ", ".join(texts)))
    target = exploration.target_fps if x.name == "throughput" else None
    ends = [*(place[0] for _, place, _ in shown), *([] if target is None else [target])]
    across = Scale(Axis(x.axis.name), ends, LEFT, RIGHT)
    up = Scale(Axis(y.axis.name), [place[1] for _, place, _ in shown], _BOTTOM, _TOP)
    parts = [*axes(across, _BOTTOM, _TOP, up)]
    if target is not None:
        at = across.pixel(target)
        parts.append(element("line", class_="target", x1=at, x2=at, y1=_TOP, y2=_BOTTOM))
    labels = []
    for candidate, place, text in shown:
        point, label = _point(candidate, across.pixel(place[0]), up.pixel(place[1]), text, chosen)
        parts.append(point)
        labels.append(label)
    parts.append(element("g", *labels, class_="labels", aria_hidden="true"))
    title = f"{x.name.capitalize()} and {y.name}"
    rows = sorted((candidate.number, place) for candidate, place, _ in shown)
    cells = tuple((f"{number}", *(f"{value:.6g}" for value in place)) for number, place in rows)
    table = Table(title, ("mapping", x.axis.name, y.axis.name), cells)
    return Figure(title, picture(title, WIDTH, _BOTTOM + 42, parts, role="group"), table)


def _point(
    candidate: Candidate, x: float, y: float, text: str, chosen: int
) -> tuple[Markup, Markup]:
    """Return a point that leads to its mapping, and its number, which lies over all points."""
    number, label = candidate.number, f"mapping {candidate.number}: {text}"
    kind = f"{'' if candidate.on_front else ' off'}{' chosen' if number == chosen else ''}"
    # Below the point where the axis is labelled above.
    height = y + (21 if y < _TOP + 24 else -13)
    point = element(
        "a",
        element("title", label),
        element("circle", class_="halo", cx=x, cy=y, r=10),
        element("circle", class_="dot", cx=x, cy=y, r=5),
        element("text", f"{number}", x=x, y=height),
        class_=f"point{kind}",
        href=f"#mapping-{number}",
        data_mapping=number,
        aria_label=label,
    )
    return point, element(
        "text", f"{number}", class_=kind.lstrip(), data_mapping=number, x=x, y=height
    )


def _details(exploration: Exploration, chosen: int) -> Html:
    local = exploration.platform == "local"
    # Without the script all are shown, so the chosen one comes first.
    candidates = sorted(exploration.candidates, key=lambda one: one.number != chosen)
    mappings = [
        {
            "candidate": candidate,
            "title": f"{rate_text(candidate.best_known.throughput_fps)} frames/s on"
            f" {boards_text(len(candidate.boards))}",
            "standing": _standing(candidate, exploration),
            "content": json.dumps(candidate.mapping, indent=1, ensure_ascii=False),
            "figures": [(one.basis, _cells(candidate, one)) for one in candidate.figures],
            "bars": (bars := [*_bars(candidate)]),
            # The longest bar leaves half of the room for its text.
            "scale": 48 / (max(max(bar["seconds"], bar["measured_s"] or 0) for bar in bars) or 1.0),
        }
        for candidate in candidates
    ]
    html = render_markup(
        "mappings.html.j2",
        mappings=mappings,
        chosen=chosen,
        figure_names=[row.head for row in columns()],
        model=exploration.model,
        platform_option="" if local else f" --platform {exploration.platform}",
    )
    return Html(html, template_text("exploration.js"), template_text("exploration.css"))


def _table(exploration: Exploration, chosen: int) -> Html:
    rate, *others = (row.head for row in columns())
    has_predicted = bool(exploration.tried_by)
    predicted = [f"predicted {rate}"] if has_predicted else []
    head = ("mapping", rate, *predicted, *others, "boards", "accelerators", "figures")
    rows = []
    for candidate in exploration.candidates:
        rate, *others = _cells(candidate, candidate.best_known)
        predicted = [rate_text(candidate.figures[0].throughput_fps)] if has_predicted else []
        boards, keys = f"{len(candidate.boards)}", ", ".join(candidate.mapping)
        basis = candidate.best_known.basis
        rows.append((candidate.number, (rate, *predicted, *others, boards, keys, basis)))
    texts = tuple(head.index(name) for name in ("accelerators", "figures"))
    html = render_markup(
        "mappings_table.html.j2", rows=rows, chosen=chosen, head=head, text_columns=texts
    )
    return Html(html)


def _count(candidates: Sequence[Candidate]) -> str:
    front = sum(candidate.on_front for candidate in candidates)
    others = len(candidates) - front
    text = f"{mappings_text(front)} of the front"
    return f"{text} and {others} more" if others else text


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
        "Memory and energy are those of the board with the highest value; energy is per frame,"
        " including idle power. Unknown figures are shown as a dash.",
        "Latency is predicted for a frame that is alone; simulated and measured it is the median in"
        " a full pipeline, where frames also wait.",
        "front.json and front.csv hold the same figures.",
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


def _bars(candidate: Candidate) -> Iterator[dict[str, Any]]:
    """Yield the times of the ranks, and of what boards send, as the template shows them."""
    slowest = max((load.load_s for load in candidate.ranks), default=0)
    for load in candidate.ranks:
        other_s = load.busy_s - load.compute_s
        text = f"{_milliseconds(load.compute_s)} computing"
        text += f" and {_milliseconds(other_s)} with messages" if other_s > 0 else ""
        text += f", {load.layer_count} layer{'s' if load.layer_count != 1 else ''}"
        text += "" if load.gpu_bytes is None else f", {bytes_text(load.gpu_bytes)} of the GPU"
        text += "" if load.turns == ALL else f"; frames {load.turns}"
        yield {
            "name": load.key,
            "kind": load.accelerator,
            "seconds": load.compute_s,
            "text": text,
            "is_slowest": load.load_s == slowest,
            "measured_s": load.measured_s,
            "measured": f"{_milliseconds(load.measured_s or 0)} measured",
        }
    for traffic in candidate.traffic:
        yield {
            "name": f"{traffic.sender} → {traffic.receiver}",
            "kind": "link",
            "seconds": traffic.seconds,
            "text": f"{_milliseconds(traffic.seconds)} sending {bytes_text(traffic.nbytes)}",
            "is_slowest": False,
            "measured_s": None,
        }


def _milliseconds(seconds: float) -> str:
    return f"{digits(1e3 * seconds)} ms"
