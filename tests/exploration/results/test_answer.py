"""What to take from an exploration, in words, and the pair of mappings for a surge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explorations import CPU, CPU_2, GPU, GPU_2, candidate, candidates, measured

from rankslice.exploration.objectives import rate_text
from rankslice.exploration.results.answer import (
    answer,
    boards_text,
    mappings_text,
    recommended,
    routes,
    routes_text,
)
from rankslice.exploration.results.candidates import Candidate
from rankslice.framework.wording import joules_text


def test_the_fewest_boards_that_are_fast_enough_are_named() -> None:
    assert (
        "One board with CPU+GPU gives 31.0 frames/s, your camera needs 40.0:"
        " use mapping 2 on two boards (43.5 frames/s)."
    ) == answer(candidates(), 40)[0]


def test_of_mappings_that_are_fast_enough_the_one_that_needs_least_energy_is_named() -> None:
    found = (
        candidate(1, 60, GPU, GPU_2, energy_j=2.0, memory_mb=10),
        candidate(2, 50, CPU, GPU_2, energy_j=1.0, memory_mb=20),
    )
    assert "use mapping 2" in answer(found, 40)[0]


def test_energy_that_is_not_known_of_all_names_none() -> None:
    found = (
        candidate(1, 60, GPU, GPU_2, energy_j=2.0, memory_mb=10),
        candidate(2, 50, CPU, GPU_2, memory_mb=20),
    )
    assert "use mapping 1" in answer(found, 40.0)[0]


def test_without_energy_the_one_that_needs_least_memory_is_named() -> None:
    found = (
        candidate(1, 60, GPU, GPU_2, memory_mb=30),
        candidate(2, 50, CPU, GPU_2, memory_mb=20),
    )
    assert "use mapping 2" in answer(found, 40)[0]


def test_one_board_may_be_enough() -> None:
    assert (
        "One board with CPU+GPU gives 31.0 frames/s, your camera needs 25.0: use mapping 3."
    ) == answer(candidates(), 25)[0]


def test_nothing_may_be_fast_enough() -> None:
    assert (
        "No mapping found is fast enough: two boards with CPU+GPU give 52.0 frames/s (mapping 1),"
        " your camera needs 100. What limits it: edge01_gpu computes 19.2 ms per frame."
    ) == answer(candidates(), 100)[0]


def test_without_a_camera_the_fastest_is_named_and_what_one_board_can_do() -> None:
    assert (
        "The fastest is mapping 1: two boards with CPU+GPU give 52.0 frames/s;"
        " one board with CPU+GPU gives 31.0 frames/s at best (mapping 3)."
    ) == answer(candidates(), None)[0]


@pytest.mark.parametrize(("fps", "number"), [(None, 1), (25, 3), (40, 2), (100, 1)])
def test_the_recommended_mapping_is_the_one_that_the_answer_names(
    fps: float | None, number: int
) -> None:
    assert number == recommended(candidates(), fps).number
    assert f"mapping {number}" in answer(candidates(), fps)[0]


def test_the_ends_of_the_front_are_named() -> None:
    assert (
        "The least energy per board and frame, 400 mJ (modelled): mapping 2, 43.5 frames/s on two"
        " boards.",
        "The least memory per board, 70.0 MB: mapping 4, 12.0 frames/s on two boards.",
        "These rates are predicted; --evaluate run measures them.",
    ) == answer(candidates(), None)[1:]


def test_what_is_not_known_is_not_named() -> None:
    few = (candidate(1, 10, CPU, memory_mb=None), candidate(2, 9, CPU_2, memory_mb=None))
    assert 2 == len(answer(few, None))


def test_what_was_measured_is_said() -> None:
    first, second, *others = candidates()
    assert (
        "Rates of mapping 2 are measured, those of the others predicted."
        == answer((first, measured(second), *others), 40)[-1]
    )


def test_numbers_have_three_digits() -> None:
    assert ["0.52", "9.99", "31.4", "812"] == [rate_text(x) for x in (0.52, 9.99, 31.4, 812.3)]
    assert ["430 mJ", "1.52 J"] == [joules_text(x) for x in (0.43, 1.52)]


def test_a_single_mapping_is_not_the_least_of_several() -> None:
    only = answer((candidate(1, 10, CPU, memory_mb=60, energy_j=0.5),), None)
    assert ["The fastest", "These rates"] == [" ".join(text.split()[:2]) for text in only]


def test_mappings_are_counted() -> None:
    assert ["1 mapping", "32,768 mappings"] == [mappings_text(n) for n in (1, 32_768)]


def test_boards_are_counted_in_words() -> None:
    assert ["one board", "two boards", "12 boards"] == [boards_text(n) for n in (1, 2, 12)]


def with_latency(found: Candidate, latency_s: float) -> Candidate:
    return replace(found, figures=(replace(found.figures[0], latency_s=latency_s),))


FAST = with_latency(candidate(1, 60, GPU, GPU_2, memory_mb=30), 0.050)
FRUGAL = with_latency(candidate(2, 50, CPU, GPU_2, memory_mb=20), 0.045)
NEAR = with_latency(candidate(3, 25, GPU, memory_mb=10), 0.040)
SLOW = with_latency(candidate(4, 10, CPU, CPU_2, memory_mb=5), 0.020)
FOUND = (FAST, FRUGAL, NEAR, SLOW)


def test_the_usual_load_gets_the_least_latency_that_keeps_up() -> None:
    assert (NEAR, FRUGAL) == routes(FOUND, 20, 45)


def test_the_usual_route_is_not_so_busy_that_it_would_be_left() -> None:
    assert (FRUGAL, FAST) == routes(FOUND, 23, 55)


def test_one_route_is_enough_if_it_keeps_up_with_the_surge() -> None:
    pair = routes(FOUND, 20, 25)
    assert (NEAR, NEAR) == pair
    assert [
        "Mapping 3 has the least latency and keeps up with a surge of 25.0 frames/s, too: one route"
        " is enough."
    ] == list(routes_text(pair, 20, 25))


def test_what_no_mapping_reaches_has_no_pair() -> None:
    assert routes(FOUND, 20, 70) is None
    assert routes(FOUND, 58, 60) is None
    (text,) = routes_text(None, 20, 70)
    assert "There is no pair of mappings for 20.0 and 70.0 frames/s" in text


def test_the_pair_is_told_with_what_to_build() -> None:
    assert [
        "For 20.0 frames/s mapping 3 has the least latency (40 ms, 25.0 frames/s); for a surge of"
        " 45.0 take mapping 2 (45 ms, 50.0 frames/s): build with --mapping mapping-03.json --surge"
        " mapping-02.json."
    ] == list(routes_text((NEAR, FRUGAL), 20, 45))
