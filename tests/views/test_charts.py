"""Charts as markup; pages with them are opened in a browser elsewhere."""

from __future__ import annotations

import math
import re
from html import unescape
from itertools import pairwise

import pytest
from browsers import Elements
from hypothesis import given, strategies as st

from rankslice.measurement.bench.intervals import Interval
from rankslice.views.charts import (
    Axis,
    Bar,
    Mark,
    Point,
    Scale,
    Series,
    bar_figure,
    histogram_figure,
    interval_figure,
    line_figure,
)

NUMBERS = st.floats(-1e12, 1e12).map(lambda value: round(value, 9))
HOSTILE = "</svg><script>alert(1)</script>\n" * 3


def attributes(svg: str, tag: str, kind: str) -> list[dict[str, str | None]]:
    elements = Elements(svg).found
    return [own for name, own in elements if name == tag and kind in str(own.get("class")).split()]


@pytest.mark.parametrize("scale", ["linear", "log", "percentile"])
@given(st.lists(NUMBERS, max_size=5))
def test_values_and_round_values_lie_on_their_axis(scale: str, values: list[float]) -> None:
    axis = Scale(Axis("x", scale), values, 58, 424)  # type: ignore[arg-type]
    places = [axis.pixel(value) for value in values if axis.shows(value)]
    assert all(58 <= place <= 424 for place in [*places, *(tick.at for tick in axis.ticks)])
    assert len(axis.ticks) <= 10


@pytest.mark.parametrize("values", [(1e-3, 2e-3), (0.5, 0.5), (1, 1e6), (3.0, 41.0)])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_an_axis_has_at_least_two_round_values(scale: str, values: tuple[float, float]) -> None:
    axis = Scale(Axis("x", scale), values, 58, 424)  # type: ignore[arg-type]
    assert 2 <= len(axis.ticks)
    assert all(1 <= later.at - earlier.at for earlier, later in pairwise(axis.ticks))


def test_each_nine_of_a_percentile_has_the_same_room() -> None:
    axis = Scale(Axis("x", "percentile"), [50, 99.99, 100], 0, 1000)
    places = [axis.pixel(value) for value in (0, 90, 99, 99.9, 99.99)]
    gaps = [later - earlier for earlier, later in pairwise(places)]
    assert gaps[1:] == pytest.approx(gaps[:-1], abs=0.3)
    assert 1000 == axis.pixel(100)
    assert ["0", "50", "90", "99", "99.9", "99.99"] == [tick.text for tick in axis.ticks]


def test_a_line_goes_up_where_values_do_and_leaves_out_what_cannot_be_shown() -> None:
    values = (1.0, 10.0, math.nan, 0.0, -1.0, math.inf, 100.0)
    points = tuple(Point(number, value) for number, value in enumerate(values))
    svg = line_figure("", [Series("a", points)], Axis("frame"), Axis("ms", "log")).svg
    (curve,) = attributes(svg, "polyline", "curve")
    places = [tuple(map(float, place.split(","))) for place in str(curve["points"]).split()]
    assert 3 == len(places)
    (_, first), (_, second), (_, third) = places
    assert first - second == pytest.approx(second - third, abs=0.3)


def test_a_point_has_its_interval() -> None:
    series = Series("a", (Point(1, 5, 4, 7), Point(2, 5)), is_joined=False)
    svg = line_figure("", [series], Axis("clock"), Axis("ms")).svg
    assert [] == attributes(svg, "polyline", "curve")
    assert 1 == len(attributes(svg, "polyline", "interval"))
    assert 2 == len(attributes(svg, "circle", "area"))


def test_bars_of_a_histogram_are_as_high_as_their_counts_and_touch() -> None:
    svg = histogram_figure("", [(0, 1, 10), (1, 2, 40), (2, 3, 0)], Axis("ms")).svg
    low, high = attributes(svg, "rect", "area")
    assert 4 == pytest.approx(float(str(high["height"])) / float(str(low["height"])), abs=0.05)
    end = float(str(low["x"])) + float(str(low["width"]))
    assert float(str(high["x"])) == pytest.approx(end, abs=1)


def test_parts_of_a_bar_lie_one_after_the_other_in_their_colours() -> None:
    svg = bar_figure(
        "", [Bar("rank 0", (2, 1)), Bar("rank 1", (0, 3))], ("compute", "wait"), MS
    ).svg
    bars = [own for own in attributes(svg, "rect", "area") if "y" in own and "rx" not in own]
    assert ["area series-0", "area series-1", "area series-1"] == [own["class"] for own in bars]
    two, one, three = (float(str(own["width"])) for own in bars)
    assert three == pytest.approx(two + one, abs=0.2)


MS = Axis("milliseconds")


def test_an_interval_has_its_value_inside_and_its_text_beside_its_name() -> None:
    ratio = Interval(1.03, 0.99, 1.07)
    svg = interval_figure("", [("a / b", ratio)], Axis("ratio"), Mark(1, "the same")).svg
    (curve,) = attributes(svg, "polyline", "interval")
    (dot,) = attributes(svg, "circle", "area")
    low, high = (float(place.split(",")[0]) for place in str(curve["points"]).split())
    (line,) = attributes(svg, "line", "target")
    assert low < float(str(line["x1"])) < float(str(dot["cx"])) < high
    texts = re.findall(r'class="over[^>]*>([^<]*)<', svg)
    assert ["1.03", "a / b", "the same"] == sorted(texts)


def test_names_are_escaped_and_kept_short() -> None:
    charts = (
        line_figure(
            "",
            [Series(HOSTILE, (Point(0, 1),)), Series(HOSTILE, ())],
            *(Axis(HOSTILE), Axis(HOSTILE)),
            x_marks=[Mark(0, HOSTILE)],
            y_marks=[Mark(1, HOSTILE)],
        ),
        histogram_figure("", [(0, 1, 1)], Axis(HOSTILE)),
        interval_figure("", [(HOSTILE, Interval(1, 1, 1))], MS, Mark(1, HOSTILE)),
        bar_figure("", [Bar(HOSTILE, (1,), "1")], [HOSTILE], MS),
    )
    for svg in (figure.svg for figure in charts):
        assert "<script" not in svg
        assert Elements(svg).found
        assert all(
            len(unescape(text)) <= 50 for text in re.findall(r'class="over[^>]*>([^<]*)<', svg)
        )


def test_without_values_there_are_axes() -> None:
    assert attributes(line_figure("", [], MS, MS).svg, "line", "axis")
    assert attributes(histogram_figure("", [], MS).svg, "line", "axis")
    assert attributes(bar_figure("", [], (), MS).svg, "line", "axis")
    assert attributes(interval_figure("", [], MS, Mark(1, "")).svg, "line", "axis")
