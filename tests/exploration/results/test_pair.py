"""A mapping for the usual load, and one for a surge."""

from __future__ import annotations

from dataclasses import replace

from explorations import CPU, CPU_2, GPU, GPU_2, candidate

from rankslice.exploration.results.answer import routes, routes_text
from rankslice.exploration.results.candidates import Candidate


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
