"""Pages as documents; ``test_page_in_browser.py`` opens them."""

from __future__ import annotations

import re

import pytest
from browsers import Elements

from rankslice.views.content import Code, Figure, Html, Notice, Page, Section, Table
from rankslice.views.page import data_block, page_html

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\u202e{{ 7 * 7 }}\x1b[2J"


def page_of(*parts: Table | Figure | Notice | Code | Html, title: str = "A run") -> str:
    return page_html(Page(title, "of a model", (Section("Figures", ("A paragraph.",), parts),)))


TABLE = Table("Ranks", ("rank", "p50"), (("edge01_cpu0", "1.5"), ("edge02_cpu0", "2")))
PICTURE = '<svg viewBox="0 0 440 10"><rect class="area series-0" width="9" height="9"/></svg>'


def test_a_page_is_well_formed_and_asks_for_nothing() -> None:
    parts = (
        *(TABLE, Figure("Latency", PICTURE, TABLE), Figure("Rate", PICTURE)),
        *(Notice("Answer", ("yes",)), Code("Command", "rankslice run out"), Html("<p>own</p>")),
    )
    page = page_of(*parts)
    assert page.startswith("<!DOCTYPE html>")
    assert Elements(page).found
    assert [] == re.findall(r"https?://|url\(|<link|<img|@import|src=", page)


def test_texts_are_escaped_wherever_they_stand() -> None:
    table = Table(HOSTILE, (HOSTILE,), ((HOSTILE, HOSTILE),))
    parts = (
        *(table, Figure(HOSTILE, PICTURE, table), Notice(HOSTILE, (HOSTILE,))),
        Code(HOSTILE, HOSTILE),
    )
    page = page_html(Page(HOSTILE, HOSTILE, (Section(HOSTILE, (HOSTILE,), parts),)))
    assert 1 == page.count("<script")
    assert "<img" not in page
    assert "{{ 7 * 7 }}" in page
    assert page.replace("\n", "").isprintable()
    assert Elements(page).found


def test_data_for_scripts_ends_no_element() -> None:
    page = page_of(Html(data_block("events", {"name": HOSTILE})))
    assert 2 == page.count("<script")
    assert "<img" not in page


def test_no_script_runs_but_the_pages_own() -> None:
    plain, own = page_of(), page_of(Html("", "document.title = 'own';\n"))
    policies = [re.findall(r"script-src ([^;\"]*)", page) for page in (plain, own)]
    assert all(re.fullmatch(r"'sha256-[\w+/]{43}='", policy) for (policy,) in policies)
    assert policies[0] != policies[1]


@pytest.mark.parametrize(
    "own", [Html("", "'</script>'"), Html("", "'<!--'"), Html("", style="a { } </style>")]
)
def test_a_script_or_style_that_would_end_its_element_is_refused(own: Html) -> None:
    with pytest.raises(ValueError, match="the end of an element"):
        page_of(own)


def test_the_same_script_is_there_once() -> None:
    script = "document.body.dataset.own = '';\n"
    assert 1 == page_of(Html("<p>1</p>", script), Html("<p>2</p>", script)).count(script)


def test_figures_that_follow_each_other_stand_side_by_side() -> None:
    figure = Figure("Latency", PICTURE)
    assert 2 == page_of(figure, figure, TABLE, figure).count('<div class="charts">')


def test_what_can_be_copied_has_a_button() -> None:
    assert 2 == page_of(*(TABLE, Figure("Latency", PICTURE, TABLE), Figure("Rate", PICTURE))).count(
        '<button class="copy"'
    )


def test_clauses_become_sentences_and_names_stay_as_they_are() -> None:
    texts = ("the link limits", "out: 3 frames", "edge01 has no sensor.", "unlike in this:")
    expected = ("The link limits.", "out: 3 frames.", "edge01 has no sensor.", "Unlike in this:")
    assert expected == Notice("Answer", texts).sentences


def test_figures_are_aligned_to_the_right() -> None:
    rows = (
        ("rank 0", "1.5", "±2 %", "<=1.54 kB", "600-1500 MHz", "–", "127.0.0.1", "1", "2026-11-25"),
        ("rank 1", "-", "0.9 to 1.1", "1e+06 B", "1,500 MHz", "–", "", "edge01", "3x4"),
    )
    assert (1, 2, 3, 4) == Table("", tuple("abcdefghi"), rows).right


def test_the_same_page_has_the_same_bytes() -> None:
    assert page_of(TABLE) == page_of(TABLE)
