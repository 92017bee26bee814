"""The page of an exploration in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsers import CONTRAST, DESKTOP, PHONE, opened
from explorations import candidates, exploration, measured

from rankslice.views.exploration_page import page_of

pytestmark = pytest.mark.ci

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def path(tmp_path: Path) -> Path:
    first, second, *others = candidates()
    path = tmp_path / "index.html"
    path.write_text(page_of(exploration((first, measured(second), *others))), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Any, path: Path) -> Iterator[Page]:
    """The page, opened without a network; complaints of the browser's are the test's."""
    with opened(browser, path, DESKTOP) as page:
        yield page


def shown(page: Page) -> list[str]:
    """Return the mappings whose sections can be seen."""
    sections = page.locator("section.mapping")
    visible = [section for section in sections.all() if section.is_visible()]
    return [str(section.get_attribute("data-mapping")) for section in visible]


def point(page: Page, chart: int, number: int) -> Any:
    return page.locator("figure").nth(chart).locator(f"a[data-mapping='{number}']")


def test_at_first_the_recommended_mapping_is_shown_and_marked(page: Page) -> None:
    assert ["2"] == shown(page)
    assert [["2", "3"]] * 3 == [labels(page, chart) for chart in range(3)]


def labels(page: Page, chart: int) -> list[str]:
    """Return the numbers that can be read in a chart: of the chosen point and of hollow ones."""
    texts = page.locator("figure").nth(chart).locator(".labels text").all()
    opacity = "element => getComputedStyle(element).opacity"
    return sorted(text.inner_html() for text in texts if "1" == text.evaluate(opacity))


def test_the_answer_stands_at_the_top(page: Page) -> None:
    answer = page.get_by_label("Answer")
    assert "use mapping 2 on two boards" in answer.inner_text()
    box = answer.bounding_box()
    assert box is not None
    assert box["y"] < 300


def test_a_click_on_a_point_shows_its_mapping_and_marks_it_in_every_chart(page: Page) -> None:
    point(page, 0, 1).locator(".dot").click()
    assert ["1"] == shown(page)
    point(page, 0, 2).locator(".dot").click()
    assert ["2"] == shown(page)
    for chart in range(3):
        assert "chosen" in str(point(page, chart, 2).get_attribute("class"))
        assert "chosen" not in str(point(page, chart, 1).get_attribute("class"))
    section = page.locator("#mapping-2")
    assert "21.5 ms measured" in section.inner_text()
    assert "mapping-02.json" in section.inner_text()
    assert page.url.endswith("#mapping-2")


def test_bars_are_as_long_as_their_stages_take(page: Page) -> None:
    point(page, 1, 2).locator(".dot").click()
    bars = page.locator("#mapping-2 .bar")
    widths = [box["width"] for bar in bars.all() if (box := bar.bounding_box()) is not None]
    # Predicted and measured of two ranks, then the channel.
    expected = [20.0, 21.5, 22.0, 22.4, 12.5]
    assert expected == [pytest.approx(width * 22.4 / max(widths), rel=0.02) for width in widths]


def test_a_click_in_the_table_shows_the_mapping(page: Page) -> None:
    page.locator("#mappings tbody tr").nth(3).locator("a").click()
    assert ["4"] == shown(page)
    assert page.locator("#mapping-4").is_visible()


def test_the_keyboard_alone_will_do(page: Page) -> None:
    point(page, 0, 3).focus()
    page.keyboard.press("Enter")
    assert ["3"] == shown(page)
    assert "true" == point(page, 0, 3).get_attribute("aria-current")


def test_an_address_leads_to_a_mapping(browser: Any, path: Path) -> None:
    page = browser.new_page()
    page.goto(f"{path.as_uri()}#mapping-4")
    assert ["4"] == shown(page)
    page.goto(f"{path.as_uri()}#mapping-99")
    assert ["2"] == shown(page)
    page.close()


def test_without_scripts_every_mapping_is_shown(browser: Any, path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert ["2", "1", "3", "4"] == shown(page)
    context.close()


def test_nothing_sticks_out_of_the_page_on_a_phone(browser: Any, path: Path) -> None:
    with opened(browser, path, PHONE) as page:
        assert page.locator("#mapping-2").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(browser: Any, path: Path, scheme: Any) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(path.as_uri())
    for selector in ("body", ".dim", "th", ".notice", "a"):
        assert 4.5 <= page.evaluate(CONTRAST, selector), selector
    page.close()
