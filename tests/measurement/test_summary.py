"""What a run's measurements mean."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rankslice.framework.throughput import throughput_fps
from rankslice.measurement.summary import EnergySummary, RunSummary, summarise
from rankslice.measurement.verify import Verification


def rank(number: int, *, compute: float = 1.0, cpu: float = 1.0, core: int | None = None) -> Any:
    """Return what a rank reports; times in ms per frame."""
    return {
        "rank": number,
        "key": f"board_cpu{number}",
        "host": "board",
        "cores": [number if core is None else core],
        "engine": "onnxruntime",
        "compute_ms": {"mean": compute, "p50": compute, "p99": compute, "max": compute},
        "wait_ms": 0.0,
        "send_ms": 0.5,
        "cpu_ms": cpu,
        "memory_mb": 80.0,
        "wall_s": 1.0,
        "python": "3.11.7",
    }


SOURCE = {
    "frames": 100,
    "window": 4,
    "fps": None,
    "dropped": [],
    "latency_ms": {"mean": 10.5, "p50": 10.0, "p90": 11.0, "p99": 12.0, "max": 13.0},
    "preprocess_ms": {"mean": 2.0, "p50": 2.0, "p99": 3.0, "max": 3.0},
}
SINK = {"postprocess_ms": {"mean": 0.1, "p50": 0.1, "p99": 0.2, "max": 0.2}}


def summary(*ranks: Any, period_ms: float = 10.0, **source: Any) -> RunSummary:
    """Return the summary of 100 frames that came out one per period."""
    records = [{**ranks[0], "source": {**SOURCE, **source}, "sink": SINK}, *ranks[1:]]
    return summarise(records, np.arange(100) * period_ms / 1e3)


def test_the_stages_at_both_ends_have_times_of_their_own() -> None:
    found = summary(rank(0), rank(1))
    assert (SOURCE["preprocess_ms"], SINK["postprocess_ms"]) == (
        found.preprocess_ms,
        found.postprocess_ms,
    )
    assert (2.0, 0.1) == tuple(
        found.to_json()[name]["mean"] for name in ("preprocess_ms", "postprocess_ms")
    )


def test_the_rate_leaves_out_the_time_until_the_pipeline_is_full() -> None:
    # The first ten frames take a second each, the other twenty a tenth.
    times = np.cumsum([1.0] * 10 + [0.1] * 20)
    rate, of = throughput_fps(times, window=3)
    assert "steady state" == of
    assert (30 - 10) / (times[29] - times[9]) == pytest.approx(rate)
    assert 10.0 == pytest.approx(rate)


def test_a_window_above_ten_is_what_is_left_out() -> None:
    times = np.cumsum([1.0] * 15 + [0.1] * 20)
    rate, of = throughput_fps(times, window=15)
    assert "steady state" == of
    assert (35 - 15) / (times[34] - times[14]) == pytest.approx(rate)


@pytest.mark.parametrize(("frames", "of"), [(20, "all frames"), (21, "steady state")])
def test_of_twice_as_many_frames_as_are_left_out_or_fewer_all_count(frames: int, of: str) -> None:
    assert of == throughput_fps(np.arange(frames) * 0.1, window=5)[1]


def test_of_few_frames_the_rate_is_that_between_the_first_and_the_last() -> None:
    rate, of = throughput_fps(np.array([5.0, 5.5, 6.0]), window=4)
    assert (2.0, "all frames") == (rate, of)


@pytest.mark.parametrize("times", [[], [3.0], [3.0, 3.0]])
def test_without_time_between_frames_there_is_no_rate(times: list[float]) -> None:
    assert (0.0, "all frames") == throughput_fps(np.array(times), window=4)


def test_a_summary_tells_what_the_source_and_the_ranks_reported() -> None:
    found = summary(rank(0), rank(1), dropped=[7, 9])
    assert (100, 100, (7, 9), 4) == (found.frames, found.completed, found.dropped, found.window)
    assert SOURCE["latency_ms"] == found.latency_ms
    assert 100.0 == pytest.approx(found.throughput_fps)
    assert ["board_cpu0", "board_cpu1"] == [part.key for part in found.ranks]
    assert [(0,), (1,)] == [part.cores for part in found.ranks]


def test_the_source_may_be_any_rank() -> None:
    records = [{**rank(0), "sink": SINK}, {**rank(1), "source": SOURCE}]
    assert 4 == summarise(records, np.arange(100.0)).window


def test_a_boards_energy_is_spread_over_the_frames_that_came_out() -> None:
    told = {"joules": 5.0, "seconds": 1.25, "mean_w": 4.0}
    measured = {"board": "a", "source": "measured", "sensor": "hwmon ina219", **told}
    absent = {"board": "b", "source": "absent", "sensor": None, "reason": "no sensor"}
    found = summary({**rank(0), "energy": measured}, rank(1), {**rank(2), "energy": absent})
    assert (
        EnergySummary("a", "measured", "hwmon ina219", 5.0, 1.25, 4.0, 50.0),
        EnergySummary("b", "absent", None, reason="no sensor"),
    ) == found.energy


def test_energy_of_no_frames_is_that_of_none() -> None:
    told = {"joules": 5.0, "seconds": 1.25, "mean_w": 4.0}
    measured = {"board": "a", "source": "measured", "sensor": "hwmon ina219", **told}
    records = [{**rank(0), "energy": measured, "source": SOURCE, "sink": SINK}]
    (energy,) = summarise(records, np.zeros(0)).energy
    assert (5.0, None) == (energy.joules, energy.mj_per_frame)


def test_a_summary_is_plain_json() -> None:
    verdict = Verification(True, True, 0.0, 0.0, 100)
    records = [{**rank(0), "source": SOURCE, "sink": SINK}]
    record = summarise(records, np.arange(100.0), verdict).to_json()
    back = json.loads(json.dumps(record, allow_nan=False))
    assert [0] == back["ranks"][0]["cores"]
    assert {"mean", "p50", "p90", "p99", "max"} == set(back["latency_ms"])
    assert back["verify"]["bit_equal"]
    expected = {
        *("frames", "completed", "dropped", "window", "throughput_fps", "throughput_of"),
        *("latency_ms", "bottleneck", "verify", "ranks"),
    }
    assert expected <= set(back)


def test_a_rank_that_computes_most_of_the_time_is_the_bottleneck() -> None:
    assert (
        "rank 1 (board_cpu1) computes 8 ms of the 10 ms per frame;"
        " fewer layers there would make it faster"
        == summary(rank(0), rank(1, compute=8)).bottleneck
    )


def test_a_rank_alone_has_nobody_to_give_layers_to() -> None:
    expected = "rank 0 (board_cpu0) computes 8 ms of the 10 ms per frame"
    assert expected == summary(rank(0, compute=8)).bottleneck


def test_a_source_that_gives_no_more_frames_is_the_bottleneck() -> None:
    assert (
        "the source: 100 frames/s arrive;"
        " the busiest, rank 0 (board_cpu0), computes 2 ms of the 10 ms per frame"
        == summary(rank(0, compute=2), rank(1), fps=100.0).bottleneck
    )


def test_a_core_that_ranks_share_is_the_bottleneck_when_it_is_busy() -> None:
    ranks = [rank(number, compute=2, cpu=3, core=0) for number in range(3)]
    assert (
        "core 0 of board: ranks 0 and 1 and 2 keep it busy for 9 ms of the 10 ms per frame,"
        " 6 ms of that computing" == summary(*ranks).bottleneck
    )


def test_where_nobody_is_busy_no_rank_is_blamed() -> None:
    assert (
        "no rank: the busiest, rank 1 (board_cpu1), computes 2 ms of the 10 ms per frame; the"
        " rest is waiting for the source or for messages, which a larger --window may hide"
        == summary(rank(0), rank(1, compute=2)).bottleneck
    )


def test_a_single_frame_tells_of_no_bottleneck() -> None:
    records = [{**rank(0), "source": SOURCE, "sink": SINK}]
    assert "too few frames to tell" == summarise(records, np.array([1.0])).bottleneck
