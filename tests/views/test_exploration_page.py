"""The page of an exploration, as a document; ``test_page_in_browser.py`` clicks on it."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from browsers import Elements
from explorations import CPU, GPU, candidate, candidates, exploration, measured

from rankslice.exploration.results.candidates import Failure
from rankslice.exploration.results.front_files import candidates_csv, exploration_to_json
from rankslice.views.exploration_page import page_of


def test_the_page_is_well_formed() -> None:
    assert Elements(page_of(exploration())).found


def test_the_page_asks_the_network_for_nothing() -> None:
    page = page_of(exploration())
    assert [] == re.findall(r"https?://|url\(|<link|<img|@import|src=", page)


def test_there_is_a_projection_for_each_two_objectives() -> None:
    titles = re.findall('<figcaption class="title"><span>(.*?)</span>', page_of(exploration()))
    assert ["Throughput and energy", "Throughput and memory", "Energy and memory"] == titles


def test_one_objective_is_shown_beside_latency() -> None:
    only = replace(exploration(), objectives=("throughput",))
    titles = re.findall('<figcaption class="title"><span>(.*?)</span>', page_of(only))
    assert ["Throughput and latency"] == titles


def test_each_mapping_is_a_point_in_each_projection_and_a_section() -> None:
    elements = Elements(page_of(exploration())).found
    points = [
        a["data-mapping"]
        for tag, a in elements
        if a.get("class", "") and "point" in str(a["class"]) and tag == "a"
    ]
    assert sorted([*"1234"] * 3) == sorted(map(str, points))
    sections = [a["id"] for tag, a in elements if tag == "section" and "id" in a]
    assert [f"mapping-{number}" for number in (2, 1, 3, 4)] == sections


def chosen(page: str) -> dict[str, list[str]]:
    """Return the mappings that are marked before any script runs, by element."""
    marked: dict[str, list[str]] = {}
    for tag, attributes in Elements(page).found:
        if "chosen" in str(attributes.get("class")).split():
            marked.setdefault(tag, []).append(str(attributes["data-mapping"]))
    return marked


@pytest.mark.parametrize(("fps", "number"), [(40.0, "2"), (25.0, "3"), (100.0, "1"), (None, "1")])
def test_the_page_opens_with_the_mapping_that_the_answer_names(
    fps: float | None, number: str
) -> None:
    page = page_of(exploration(target_fps=fps))
    assert f"mapping {number}" in page.split('aria-label="Answer"')[1].split("</p>")[0]
    assert {"a": [number] * 3, "text": [number] * 3, "section": [number], "tr": [number]} == chosen(
        page
    )
    assert f'data-recommended="{number}"' in page
    sections = re.findall(r'<section class="mapping[^>]* id="mapping-(\d)"', page)
    assert [number, *(other for other in "1234" if other != number)] == sections


def test_points_that_are_not_on_the_front_are_numbered() -> None:
    labels = re.findall(
        r'<text class="off[^>]*data-mapping="(\d)"[^>]*>(\d)<', page_of(exploration())
    )
    assert [("3", "3")] * 3 == labels


def test_points_lie_inside_their_chart_and_those_that_are_faster_lie_to_the_right() -> None:
    chart = page_of(exploration()).split("<figure")[1]
    xs = {
        int(number): float(x)
        for number, x in re.findall(r'data-mapping="(\d)".*?class="dot" cx="([\d.]+)"', chart)
    }
    assert [4, 3, 2, 1] == sorted(xs, key=lambda number: xs[number])
    assert 58 <= min(xs.values()) <= max(xs.values()) <= 424


def test_numbers_of_points_do_not_cover_the_label_of_the_axis() -> None:
    page = page_of(exploration())
    numbers = re.findall(r'<text class="[a-z ]*" data-mapping[^>]* y="([\d.]+)"', page)
    assert 12 == len(numbers)
    assert 30 <= min(map(float, numbers))


@pytest.mark.parametrize("fps", [1e-3, 0.5, 7.0, 31.0, 1e5])
def test_an_axis_has_a_few_round_numbers(fps: float) -> None:
    page = page_of(exploration((candidate(1, fps, "b_cpu0"),), None))
    ticks = re.findall(r'class="dim middle"[^>]*>([^<]*)<', page.split("<figure")[1])
    assert 2 <= len(ticks) <= 8


def test_figures_of_a_run_are_beside_the_predicted_ones() -> None:
    page = page_of(exploration((measured(candidates()[1]),)))
    assert ["predicted", "measured"] == re.findall(r'<th scope="row">([a-z]+)</th>', page)
    assert "21.5 ms measured" in page
    assert "12.5 ms sending 1.54 MB" in page


def test_what_failed_is_told_with_its_reason() -> None:
    failures = tuple(
        Failure({"edge01_gpu": ["conv1..fc"]}, f"the engine refuses conv{number}")
        for number in range(1, 8)
    )
    page = page_of(exploration((measured(candidates()[1]),), failures=failures))
    assert "8 mappings were built and run; 7 of them failed and count as impossible" in page
    assert "(edge01_gpu: conv1..fc) did not run: the engine refuses conv1." in page
    assert "Nor did 2 more; front.json has their reasons." in page


def test_the_table_has_predicted_rates_beside_measured_ones() -> None:
    page = page_of(exploration((measured(candidates()[1]),)))
    rows = page.split('<table id="mappings">')[1]
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", rows)
    assert ["mapping", "frames/s", "predicted frames/s", "latency"] == heads[:4]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", rows)
    assert ["41.2", "43.5"] == cells[:2]
    assert "measured" == cells[-1]
    assert "predicted frames/s" not in page_of(exploration())


def test_what_is_not_on_the_front_says_why_it_is_shown() -> None:
    slower = candidate(5, 30.0, CPU, GPU, on_front=False)
    page = page_of(exploration((*candidates(), slower)))
    worse = "nother mapping is at least as good in throughput, energy and memory."
    assert f">The fastest found on one board; a{worse}<" in page
    assert f">A{worse}<" in page
    assert "everything" not in page


def test_what_is_on_the_front_says_by_which_objectives() -> None:
    only = replace(exploration(), objectives=("throughput", "latency"))
    page = page_of(only)
    assert "No other mapping that was found is at least as good in throughput and latency." in page
    assert "everything" not in page


def test_names_cannot_break_the_page() -> None:
    evil = "</script><script>alert('x')</script>\u202e.onnx"
    hostile = replace(
        candidate(1, 9.0, "edge<b>_cpu0"), bottleneck='<img src=x onerror="alert(1)">'
    )
    page = page_of(exploration((hostile,), model=evil))
    assert 1 == page.count("<script>")
    assert "<img" not in page
    assert "edge<b>" not in page


def test_the_same_exploration_makes_the_same_page() -> None:
    assert page_of(exploration()) == page_of(exploration())


def test_the_table_has_a_line_for_each_mapping_and_source() -> None:
    shown = (candidates()[0], measured(candidates()[1]))
    rows = list(csv.DictReader(io.StringIO(candidates_csv(shown))))
    assert [("1", "predicted"), ("2", "predicted"), ("2", "measured")] == [
        (row["mapping"], row["source"]) for row in rows
    ]
    assert ("52", "180", "0.42", "modelled", "2", "cpu+gpu") == tuple(
        rows[0][name]
        for name in (
            *("throughput_fps", "worst_memory_mb", "worst_energy_j", "energy_source"),
            *("boards", "accelerators"),
        )
    )


def test_what_is_not_known_is_null_and_an_empty_cell() -> None:
    only = (candidate(1, 5.0, "edge01_cpu0", memory_mb=None),)
    record = json.loads(json.dumps(exploration_to_json(exploration(only))))
    shown = record["mappings"][0]["figures"][0]
    assert (None, None, None) == (
        shown["worst_memory_bytes"],
        shown["worst_energy_j"],
        shown["energy_source"],
    )
    row = next(csv.DictReader(io.StringIO(candidates_csv(only))))
    assert ("", "") == (row["worst_memory_mb"], row["worst_energy_j"])


def test_the_record_says_what_the_mapping_files_say() -> None:
    record = exploration_to_json(exploration())
    assert "mapping-03.json" == record["mappings"][2]["file"]
    assert {"edge01_cpu0-3": ["conv1..fc"], "edge01_gpu": ["conv1..fc"]} == candidates()[2].mapping
