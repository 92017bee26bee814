"""The front of an exploration in projections: a chart for each two objectives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rankslice.exploration.objectives import OBJECTIVES, Objective
from rankslice.exploration.results.answer import boards_text
from rankslice.exploration.results.candidates import Exploration
from rankslice.views.charts import WIDTH, Frame
from rankslice.views.page import Table
from rankslice.views.scales import Axis, Scale

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 58, 424, 26, 260, 302


@dataclass(frozen=True, slots=True)
class Point:
    """A mapping in a chart."""

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
class Chart:
    """One projection of the front; all lengths are pixels."""

    title: str
    frame: Frame
    points: tuple[Point, ...]
    target: float | None
    """Where the wanted rate is on the horizontal axis."""
    values: Table
    """What can be copied: of each mapping, both objectives."""


def charts_of(exploration: Exploration) -> Iterator[Chart]:
    """Yield a projection for each two objectives; throughput is always shown."""
    names = list(dict.fromkeys(("throughput", *exploration.objectives)))
    if len(names) < 2:
        names.append("latency")
    for x, y in itertools.combinations([OBJECTIVES[name] for name in names], 2):
        yield _chart(x, y, exploration)


def _chart(x: Objective, y: Objective, exploration: Exploration) -> Chart:
    # Those of the front lie on top.
    candidates = sorted(exploration.candidates, key=lambda candidate: candidate.on_front)
    values = {
        candidate.number: (horizontal, vertical)
        for candidate in candidates
        if (horizontal := x.value(candidate, candidate.best_known)) is not None
        if (vertical := y.value(candidate, candidate.best_known)) is not None
    }
    shown = {
        number: (x.axis.convert(horizontal), y.axis.convert(vertical))
        for number, (horizontal, vertical) in values.items()
    }
    target = exploration.target_fps if x.name == "throughput" else None
    wanted = () if target is None else (target,)
    ends = [*(across for across, _ in shown.values()), *wanted]
    across = Scale(Axis(x.axis.name), ends, _LEFT, _RIGHT)
    up = Scale(Axis(y.axis.name), [height for _, height in shown.values()], _BOTTOM, _TOP)
    title = f"{x.name.capitalize()} and {y.name}"
    rows = [(f"{number}", *(f"{v:.6g}" for v in shown[number])) for number in sorted(shown)]
    return Chart(
        title,
        Frame(
            *(WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM),
            *(x.axis.name, y.axis.name, across.ticks, up.ticks),
        ),
        tuple(
            Point(
                candidate.number,
                across.pixel(shown[candidate.number][0]),
                up.pixel(shown[candidate.number][1]),
                candidate.on_front,
                f"mapping {candidate.number}: {boards_text(len(candidate.boards))},"
                f" {x.full_text(values[candidate.number][0])},"
                f" {y.full_text(values[candidate.number][1])}",
            )
            for candidate in candidates
            if candidate.number in values
        ),
        None if target is None else across.pixel(target),
        Table(title, ("mapping", x.axis.name, y.axis.name), tuple(rows), (0, 1, 2)),
    )
