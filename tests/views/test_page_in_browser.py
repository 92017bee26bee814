"""Pages in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsers import CONTRAST, DESKTOP, PHONE, opened

from rankslice.views.content import Code, Figure, Html, Notice, Page, Section, Table
from rankslice.views.page import data_block, page_html

pytestmark = pytest.mark.ci

HOSTILE = "</script><script>document.title = 'taken'</script>\n<img src=x onerror='alert(1)'>"
LONG = "a_name_without_any_room_for_a_line_to_end_" * 6
PICTURE = '<svg viewBox="0 0 440 100"><rect class="area series-0" width="9" height="9"/></svg>'
TABLE = Table(
    "Ranks",
    ("rank", "p50", *(f"column {number}" for number in range(12))),
    (
        ("edge01_cpu0", "1.5", *["123456"] * 12),
        ('=HYPERLINK("x")', "-2", *["\t1\n2"] * 12),
        (HOSTILE, LONG, *["–"] * 12),
    ),
)
READING = """const found = JSON.parse(document.getElementById("found").textContent);
document.getElementById("shown").textContent = found[0];
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = (
        *(Notice("Answer", (HOSTILE, LONG)), TABLE, Figure(LONG, PICTURE, TABLE)),
        Code(LONG, LONG),
        Html(f'<p id="shown"></p>{data_block("found", [HOSTILE])}', READING),
    )
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page_html(Page("A run", LONG, (Section(LONG, (LONG,), parts),))))
    return path


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_page_fits_is_quiet_and_runs_nothing_that_texts_say(
    browser: Any, path: Path, size: tuple[int, int]
) -> None:
    with opened(browser, path, size) as page:
        assert "A run" == page.title()
        assert HOSTILE == page.locator("#shown").text_content()
        assert 0 == page.locator("img").count()


def test_buttons_copy_tab_separated_values(browser: Any, path: Path) -> None:
    with opened(browser, path, DESKTOP) as page:
        for number in (0, 1):
            button = page.get_by_role("button").nth(number)
            button.click()
            button.filter(has_text="copied").wait_for()
            lines = str(page.evaluate("navigator.clipboard.readText()")).split("\n")
            assert [14, 14, 14, 14] == [len(line.split("\t")) for line in lines[:-1]]
            assert ["edge01_cpu0", "1.5", "123456"] == lines[1].split("\t")[:3]
            assert ['\'=HYPERLINK("x")', "-2", "1 2"] == lines[2].split("\t")[:3]
            page.evaluate("navigator.clipboard.writeText('')")


def test_without_scripts_there_are_no_buttons_and_all_values(browser: Any, path: Path) -> None:
    with opened(browser, path, PHONE, java_script_enabled=False) as page:
        assert 0 == page.get_by_role("button").count()
        page.locator("summary").click()
        assert page.get_by_text("123456").last.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(browser: Any, path: Path, scheme: str) -> None:
    with opened(browser, path, PHONE, color_scheme=scheme) as page:
        for selector in ("body", ".dim", "thead th", ".notice", ".copy", "summary", "code"):
            assert 4.5 <= page.evaluate(CONTRAST, selector), selector
