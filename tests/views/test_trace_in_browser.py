"""The page of a trace in a real browser: slices are drawn, found, moved and zoomed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsers import DESKTOP, PHONE, opened
from traces import Times, chain_findings

from rankslice.views.trace_page import trace_page
from rankslice.views.trace_timeline import timeline

pytestmark = pytest.mark.ci

LEFT = 190
"""Pixels of the names before the slices, on a desktop."""
FIRST_TRACK = 24 + 22 + 10
"""Pixels from the top: below the axis and the name of the board."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    of_trace = chain_findings(Times(compute=(2, 6), link=1), 60)
    path = tmp_path_factory.mktemp("trace") / "trace.html"
    path.write_text(
        trace_page(of_trace, timeline(of_trace), (of_trace.bottleneck, *of_trace.waits))
    )
    return path


def drawn(page: Any) -> int:
    return int(page.locator(".timeline").get_attribute("data-drawn"))


def text_below(page: Any) -> str:
    return str(page.locator(".timeline .told").text_content())


def test_slices_are_drawn_and_told_where_the_mouse_points(browser: Any, path: Path) -> None:
    with opened(browser, path, DESKTOP) as page:
        assert drawn(page) > 20
        hint = text_below(page)
        box = page.locator("canvas").bounding_box()
        seen = set()
        for step in range(12):
            page.mouse.move(box["x"] + LEFT + 40 + 60 * step, box["y"] + FIRST_TRACK)
            seen.add(text_below(page))
        assert any("rank 0 compute: segment 0, frame" in text for text in seen)
        assert any("rank 0 compute: wait for room for 't0'" in text for text in seen)
        page.mouse.move(box["x"] + 5, box["y"] + 3)
        assert hint == text_below(page)
        colours = page.evaluate(
            "() => { const { width, height } = document.querySelector('canvas');"
            "const pen = document.querySelector('canvas').getContext('2d');"
            "const colours = new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer);"
            "return new Set(colours).size; }"
        )
        assert colours > 10


def test_the_timeline_zooms_and_moves(browser: Any, path: Path) -> None:
    with opened(browser, path, DESKTOP) as page:
        at_first = drawn(page)
        page.get_by_role("button", name="all").click()
        everything = drawn(page)
        assert everything > 2 * at_first
        box = page.locator("canvas").bounding_box()
        page.mouse.move(box["x"] + 600, box["y"] + FIRST_TRACK)
        page.mouse.wheel(0, -1500)
        page.wait_for_function(f"document.querySelector('.timeline').dataset.drawn < {at_first}")
        before = text_below(page)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + FIRST_TRACK, steps=5)
        page.mouse.move(box["x"] + 600, box["y"] + FIRST_TRACK + 1, steps=5)
        page.mouse.up()
        assert before == text_below(page)
        page.locator("canvas").press("Home")
        assert everything == drawn(page)


def test_a_phone_shows_it_and_takes_a_tap(browser: Any, path: Path) -> None:
    with opened(browser, path, PHONE, has_touch=True) as page:
        assert drawn(page) > 10
        box = page.locator("canvas").bounding_box()
        page.touchscreen.tap(box["x"] + 250, box["y"] + FIRST_TRACK)
        assert "rank 0" in text_below(page)
