"""What limits, by the one rule for runs, traces, simulations and plans."""

from __future__ import annotations

from rankslice.backend.runtime.summary.bottleneck import (
    COMPUTES,
    Load,
    busiest,
    core_load,
    limit_text,
    link_load,
)


def rank(number: int, share: float, on_core: float = 0.0) -> Load:
    name = f"rank {number} (cpu{number})"
    return Load(kind="rank", name=name, share=share, ranks=(number,), on_core=on_core)


def test_the_busiest_is_told_with_its_part_of_the_time_per_frame() -> None:
    loads = [rank(0, 0.5), link_load("edge01", 0.9, is_outgoing=True)]
    assert "sending from edge01 is busy for 9 ms of the 10 ms per frame" == limit_text(loads, 10)


def test_nothing_is_called_the_bottleneck_that_has_time_left() -> None:
    expected = "nothing: the busiest, rank 1 (cpu1), is busy for 6 ms of the 10 ms per frame"
    assert expected == limit_text([rank(0, 0.5), rank(1, 0.6)], 10)


def test_a_core_counts_with_all_that_its_ranks_do() -> None:
    core = core_load("edge01", 2, (0, 1), 0.9, {COMPUTES: 0.5})
    begin = (
        "core 2 of edge01 (ranks 0 and 1) is busy for 9 ms of the 10 ms per frame, of which 5 ms"
    )
    assert limit_text([rank(0, 0.5, 0.5), rank(1, 0.4, 0.4), core], 10).startswith(begin)


def test_a_rank_that_has_most_of_its_core_is_told_instead_of_the_core() -> None:
    ranks = [rank(0, 0.85, 0.85), rank(1, 0.1, 0.1)]
    assert "rank" == busiest([*ranks, core_load("edge01", 0, (0, 1), 0.95)]).kind
    waiting = [rank(0, 0.85, 0.45), rank(1, 0.85, 0.45)]
    assert "core" == busiest([*waiting, core_load("edge01", 0, (0, 1), 0.9)]).kind
