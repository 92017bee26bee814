"""What a run's measurements mean."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from hypothesis import given, strategies as st

from rankslice.backend.runtime.figures.rank_figures import (
    EnergyFigures,
    RankFigures,
    RouteFigures,
    SinkFigures,
    SourceFigures,
)
from rankslice.backend.runtime.figures.rank_usage import MIN_WARM_UP, StepTimes
from rankslice.backend.runtime.job import ALL, Turns
from rankslice.backend.runtime.sources.switching import Change
from rankslice.backend.runtime.summary.rates import frames_to_fill, throughput_fps
from rankslice.measurement.summary import RunSummary, summarise
from rankslice.measurement.verify import Verification


def rank(
    number: int,
    *,
    compute: float = 1.0,
    cpu: float = 1.0,
    core: int | None = None,
    turns: Turns = ALL,
) -> Any:
    """Return what a rank reports; times in ms per frame, of which there is one each 10 ms."""
    return {
        "rank": number,
        "key": f"board_cpu{number}",
        "host": "board",
        "cores": [number if core is None else core],
        "engine": "onnxruntime",
        "frames": 100,
        "turns": turns,
        "compute_ms": {"mean": compute, "p50": compute, "p99": compute, "max": compute},
        "wait_ms": 0.0,
        "send_ms": 0.5,
        "cpu_ms": cpu,
        "memory_mb": 80.0,
        "warm_up_ms": 12.5,
        "not_warmed_up": ["segment 1: it draws random numbers"],
        "steady": {"frames": 90, "compute_share": compute / 10, "cpu_share": cpu / 10},
        "wall_s": 1.0,
        "python": "3.11.7",
    }


def routed(number: int, usual: float, surge: float, frames: tuple[int, int], **how: Any) -> Any:
    """Return what a rank of two routes reports: times of a frame, and frames, on each."""
    told = rank(number, **how)
    for part, mean, count in zip(
        (told, told.setdefault("surge", dict(told))), (usual, surge), frames, strict=True
    ):
        part |= {"frames": count, "compute_ms": dict.fromkeys(("mean", "p50", "p99", "max"), mean)}
    return told


def changes(*frames: int) -> Any:
    """Return what a source reports of changes at these frames, to the surge first."""
    return {
        "surge_window": 6,
        "switches": tuple(
            Change(0.1 * number, frame, ("surge", "normal")[number % 2], 8, "8 were waiting")
            for number, frame in enumerate(frames)
        ),
    }


SOURCE = {
    "frames": 100,
    "window": 4,
    "fps": None,
    "dropped": (),
    "latency_ms": {"mean": 10.5, "p50": 10.0, "p90": 11.0, "p99": 12.0, "max": 13.0},
    "preprocess_ms": {"mean": 2.0, "p50": 2.0, "p99": 3.0, "max": 3.0},
}
SINK = {"postprocess_ms": {"mean": 0.1, "p50": 0.1, "p99": 0.2, "max": 0.2}}


def summary(*ranks: Any, period_ms: float = 10.0, **source: Any) -> RunSummary:
    """Return the summary of 100 frames that came out one per period."""
    records = [{**ranks[0], "source": {**SOURCE, **source}, "sink": SINK}, *ranks[1:]]
    return summarise(measured(records), np.arange(100) * period_ms / 1e3)


def measured(records: Sequence[Any]) -> list[RankFigures]:
    """Return the records of what ranks report."""
    kinds: dict[str, Any] = {
        "source": SourceFigures,
        "sink": SinkFigures,
        "surge": RouteFigures,
        "energy": EnergyFigures,
        "cores": tuple,
        "apart": tuple,
        "not_warmed_up": tuple,
    }

    def made(name: str, value: Any) -> Any:
        kind = kinds.get(name)
        if kind is None or kind is tuple:
            return value if kind is None else tuple(value)
        known = {field.name for field in fields(kind)}
        return kind(**{each: value[each] for each in value if each in known})

    return [
        RankFigures(**{name: made(name, value) for name, value in record.items()})
        for record in records
    ]


def test_the_stages_at_both_ends_have_times_of_their_own() -> None:
    run = summary(rank(0), rank(1))
    assert (SOURCE["preprocess_ms"], SINK["postprocess_ms"]) == (
        run.preprocess_ms,
        run.postprocess_ms,
    )
    assert (2.0, 0.1) == tuple(
        run.to_json()[name]["mean"] for name in ("preprocess_ms", "postprocess_ms")
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


def test_rank_and_launcher_leave_out_the_same_frames() -> None:
    for window in (1, MIN_WARM_UP, MIN_WARM_UP + 1, 40):
        assert max(window, MIN_WARM_UP) == frames_to_fill(window)


def computing(
    frames: int,
    *,
    first_s: float,
    runs_s: Sequence[float],
    waits_s: float,
    turns: Turns = ALL,
) -> Any:
    """Return what a rank tells of its steady state, with a window of 3.

    Args:
        frames: how many it handles.
        first_s: how long the first run takes in addition.
        runs_s: how long each segment takes.
        waits_s: how long it waits before each run.
        turns: which frames it handles.
    """
    clock = Clock(0.0)
    times = StepTimes(len(runs_s), 3, turns, clock)
    for index in range(frames):
        for number, run_s in enumerate(runs_s):
            taken_s = run_s + (first_s if index == number == 0 else 0.0)
            clock.now_s += waits_s + taken_s
            times.add(turns.frame(index), taken_s)
    return times.steady()


def test_of_a_rank_that_takes_turns_its_share_of_the_first_frames_is_left_out() -> None:
    clock = Clock(0.0)
    times = StepTimes(1, 20, Turns(4, (1,)), clock)
    for frame in range(1, 100, 4):
        clock.now_s += 4e-3
        times.add(frame, 3e-3)
    # 25 frames, of which 5 are among the first 20 of the stream.
    found = times.steady()
    assert found is not None
    assert (20, pytest.approx(3 / 4)) == (found["frames"], found["compute_share"])


def test_the_first_frames_are_not_in_a_ranks_steady_state() -> None:
    found = computing(50, first_s=100.0, runs_s=[3e-3, 1e-3], waits_s=1e-3)
    assert (40, pytest.approx(4 / 6)) == (found["frames"], found["compute_share"])


@pytest.mark.parametrize(
    ("period", "positions", "left_out"),
    [(2, (0,), 5), (2, (1,), 5), (3, (0, 2), 7), (4, (3,), 2), (50, (0,), 1), (50, (49,), 1)],
)
def test_the_steady_state_begins_for_ranks_that_take_turns_at_the_same_frame_of_the_stream(
    period: int, positions: tuple[int, ...], left_out: int
) -> None:
    turns = Turns(period, positions)
    assert left_out == max(1, sum(turns.frame(index) < MIN_WARM_UP for index in range(10)))
    found = computing(50, first_s=100.0, runs_s=[3e-3, 1e-3], waits_s=1e-3, turns=turns)
    assert (50 - left_out, pytest.approx(4 / 6)) == (found["frames"], found["compute_share"])


@pytest.mark.parametrize("frames", [0, 1, 10])
def test_without_frames_after_the_first_ones_there_is_no_steady_state(frames: int) -> None:
    assert computing(frames, first_s=0.0, runs_s=[1e-3], waits_s=0.0) is None


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=3), st.floats(0, 1))
def test_a_rank_never_computes_for_more_than_the_whole_time(
    runs_s: list[float], waits_s: float
) -> None:
    usage = computing(15, first_s=5.0, runs_s=runs_s, waits_s=waits_s)
    assert usage["compute_share"] <= 1 + 1e-9


def test_a_summary_tells_what_the_source_and_the_ranks_reported() -> None:
    run = summary(rank(0), rank(1), dropped=(7, 9))
    assert (100, 100, (7, 9), 4) == (
        run.frames,
        run.completed,
        run.dropped,
        run.window,
    )
    assert SOURCE["latency_ms"] == run.latency_ms
    assert 100.0 == pytest.approx(run.throughput_fps)
    assert ["board_cpu0", "board_cpu1"] == [part.key for part in run.ranks]
    assert [(0,), (1,)] == [part.cores for part in run.ranks]


def test_the_source_may_be_any_rank() -> None:
    records = [{**rank(0), "sink": SINK}, {**rank(1), "source": SOURCE}]
    assert 4 == summarise(measured(records), np.arange(100.0)).window


def test_a_boards_energy_is_spread_over_the_frames_that_came_out() -> None:
    told = {"joules": 5.0, "seconds": 1.25, "mean_w": 4.0}
    counted = {"board": "a", "source": "measured", "sensor": "hwmon ina219", **told}
    absent = {"board": "b", "source": "absent", "sensor": None, "reason": "no sensor"}
    run = summary({**rank(0), "energy": counted}, rank(1), {**rank(2), "energy": absent})
    assert (
        EnergyFigures("a", "measured", "hwmon ina219", 5.0, 1.25, 4.0, 50.0),
        EnergyFigures("b", "absent", None, reason="no sensor"),
    ) == run.energy


def test_energy_of_no_frames_is_that_of_none() -> None:
    told = {"joules": 5.0, "seconds": 1.25, "mean_w": 4.0}
    counted = {"board": "a", "source": "measured", "sensor": "hwmon ina219", **told}
    records = [{**rank(0), "energy": counted, "source": SOURCE, "sink": SINK}]
    (energy,) = summarise(measured(records), np.zeros(0)).energy
    assert (5.0, None) == (energy.joules, energy.mj_per_frame)


def test_a_summary_is_plain_json() -> None:
    verdict = Verification(True, True, 0.0, 0.0, 100)
    records = [{**rank(0), "source": SOURCE, "sink": SINK}]
    record = replace(summarise(measured(records), np.arange(100.0)), verify=verdict).to_json()
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


def test_a_rank_that_takes_turns_is_as_busy_as_its_share_of_the_time() -> None:
    # Each takes 18 ms for a frame; one comes out each 10 ms.
    ranks = [rank(1, compute=9, turns=Turns(2, (0,))), rank(2, compute=8.8, turns=Turns(2, (1,)))]
    assert (
        "rank 1 (board_cpu1; frames 0 of 2) computes 9 ms of the 10 ms per frame;"
        " fewer layers or frames there would make it faster"
        == summary(rank(0, compute=6), *ranks).bottleneck
    )


def test_of_ranks_in_turn_that_wait_for_frames_the_busiest_is_told() -> None:
    ranks = [rank(1, compute=3, turns=Turns(2, (0,))), rank(2, compute=2, turns=Turns(2, (1,)))]
    assert (
        "the source: 100 frames/s arrive;"
        " the busiest, rank 1 (board_cpu1; frames 0 of 2), computes 3 ms of the 10 ms per frame"
        == summary(rank(0), *ranks, fps=100.0).bottleneck
    )


def test_a_rank_with_all_frames_is_the_bottleneck_of_faster_ones_that_take_turns() -> None:
    ranks = [rank(1, compute=6, turns=Turns(2, (0,))), rank(2, compute=6, turns=Turns(2, (1,)))]
    assert (
        "rank 0 (board_cpu0) computes 9 ms of the 10 ms per frame;"
        " fewer layers there would make it faster" == summary(rank(0, compute=9), *ranks).bottleneck
    )


def test_a_summary_tells_which_frames_ranks_handle_and_how_many() -> None:
    found = summary(rank(0), rank(1, turns=Turns(3, (0, 2)))).to_json()["ranks"]
    assert [1, 3] == [each["turns"]["period"] for each in found]
    assert [[0], [0, 2]] == [list(each["turns"]["positions"]) for each in found]
    assert [100, 100] == [each["frames"] for each in found]


def test_a_source_that_gives_no_more_frames_is_the_bottleneck() -> None:
    assert (
        "the source: 100 frames/s arrive;"
        " the busiest, rank 0 (board_cpu0), computes 2 ms of the 10 ms per frame"
        == summary(rank(0, compute=2), rank(1), fps=100.0).bottleneck
    )


def test_a_core_that_ranks_share_is_the_bottleneck_when_it_is_busy() -> None:
    ranks = [rank(number, compute=2, cpu=3, core=0) for number in range(3)]
    assert (
        "core 0 of board (ranks 0, 1 and 2) is busy for 9 ms of the 10 ms per frame, of which"
        " 6 ms computing" == summary(*ranks).bottleneck
    )


def test_where_nobody_is_busy_no_rank_is_blamed() -> None:
    assert (
        "no rank: the busiest, rank 1 (board_cpu1), computes 2 ms of the 10 ms per frame; the"
        " rest is waiting for other ranks, which a larger --window may hide"
        == summary(rank(0), rank(1, compute=2)).bottleneck
    )


@pytest.mark.parametrize(
    ("frames", "window", "is_told"),
    [(20, 4, False), (21, 4, True), (30, 15, False), (31, 15, True), (1, 4, False)],
)
def test_of_too_few_frames_neither_rate_nor_bottleneck_is_told(
    frames: int, window: int, is_told: bool
) -> None:
    records = [{**rank(0), "source": {**SOURCE, "window": window}, "sink": SINK}]
    run = summarise(measured(records), np.arange(frames) / 100)
    assert is_told == (run.throughput_fps is not None)
    assert is_told == (run.throughput_of == "steady state")
    needed = f"give more than {2 * max(10, window)}"
    word = "frame is" if frames == 1 else "frames are"
    told = f"{frames} {word} too few to determine a rate or a bottleneck; {needed}"
    assert is_told != (told == run.bottleneck)


def test_a_first_frame_that_took_long_makes_no_rank_the_bottleneck() -> None:
    first = rank(0, compute=2)
    first["compute_ms"] |= {"mean": 20.5, "max": 1900.0}
    assert summary(first, rank(1, compute=8)).bottleneck.startswith(
        "rank 1 (board_cpu1) computes 8"
    )


def test_a_rank_that_uses_most_of_a_core_is_named_though_another_one_shares_it() -> None:
    ranks = [rank(0, compute=8, cpu=8.5, core=0), rank(1, compute=1, cpu=1, core=0)]
    assert summary(*ranks).bottleneck.startswith("rank 0 (board_cpu0) computes 8 ms of the 10 ms")


def test_ranks_that_wait_for_their_common_core_while_they_compute_are_told_as_its_crowd() -> None:
    ranks = [rank(number, compute=8, cpu=4, core=0) for number in range(2)]
    assert (
        "core 0 of board (ranks 0 and 1) is busy for 8 ms of the 10 ms per frame, of which"
        " 8 ms computing" == summary(*ranks).bottleneck
    )


def end(number: int, *, apart: Sequence[str] = (), host: str = "board", **how: Any) -> Any:
    """Return what the rank of source or sink reports; of ``how``, shares are of the time."""
    shares = {name: how.pop(name) for name in [*how] if name.endswith("_share")}
    told = rank(number, **how) | {"apart": [*apart], "host": host}
    told["steady"] |= shares
    return told


def test_a_rank_that_reads_frames_besides_is_busy_with_both() -> None:
    # As with JPEGs, and the source in the thread of the first rank: the other one computes more.
    ranks = [end(0, compute=1.1, cpu=9.9, read_share=0.85), rank(1, compute=8)]
    assert (
        "rank 0 (board_cpu0) is busy for 9.6 ms of the 10 ms per frame: 8.5 ms reading frames,"
        " 1.1 ms computing; fewer layers there or frames that are read faster would make it faster"
        == summary(*ranks).bottleneck
    )


def test_fewer_layers_are_not_advised_where_layers_take_nothing() -> None:
    ranks = [end(0, compute=0.1, cpu=9.9, read_share=0.95), end(1, compute=8, host="other")]
    assert (
        "rank 0 (board_cpu0) is busy for 9.5 ms of the 10 ms per frame: 9.5 ms reading frames;"
        " frames that are read faster or another --source-board would make it faster"
        == summary(*ranks).bottleneck
    )


def test_a_rank_that_writes_results_besides_is_busy_with_both() -> None:
    assert (
        "rank 1 (board_cpu1) is busy for 9 ms of the 10 ms per frame: 5 ms computing, 4 ms writing"
        " results; fewer layers there would make it faster"
        == summary(rank(0), end(1, compute=5, write_share=0.4)).bottleneck
    )


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (
            {"read_share": 0.9, "apart": ["source"]},
            "the source: reading frames takes 9 ms of the 10 ms per frame; frames that are read"
            " faster would make it faster",
        ),
        (
            {"write_share": 0.9, "apart": ["sink"]},
            "the sink: writing results takes 9 ms of the 10 ms per frame",
        ),
        (
            {"not_taken_share": 0.9, "apart": ["sink"]},
            "the sink: whoever reads the results takes 9 ms of the 10 ms per frame",
        ),
        (
            {"no_frame_share": 0.8, "read_share": 0.1, "apart": ["source"]},
            "the source: no frame has come for 8 ms of the 10 ms per frame; the busiest, rank 0"
            " (board_cpu0), computes 8 ms of the 10 ms per frame",
        ),
        (
            {"no_frame_share": 0.4, "read_share": 0.1, "apart": ["source"]},
            "rank 0 (board_cpu0) computes 8 ms of the 10 ms per frame",
        ),
    ],
)
def test_source_sink_and_world_limit_where_they_take_more_than_any_rank(
    shares: dict[str, Any], words: str
) -> None:
    told = end(0, compute=8, cpu=1, **shares) | {"cores": [0, 1]}
    assert summary(told, rank(1)).bottleneck.startswith(words)


def test_frames_that_come_at_a_rate_limit_though_a_rank_is_busy_with_each() -> None:
    ranks = [end(0, no_frame_share=0.95, apart=["source"]), rank(1, compute=8)]
    assert summary(*ranks, fps=100.0).bottleneck.startswith("the source: 100 frames/s arrive; the")
    # They come faster than they are taken: some are dropped.
    ranks = [end(0, no_frame_share=0.0, apart=["source"]), rank(1, compute=8)]
    assert summary(*ranks, fps=110.0).bottleneck.startswith("rank 1 (board_cpu1) computes 8 ms")


def test_a_core_that_sends_most_of_the_time_is_busier_than_a_rank_that_computes_less() -> None:
    ranks = [end(0, compute=4, cpu=9.8, read_share=0.2), rank(1, compute=8)]
    assert (
        "core 0 of board (rank 0) is busy for 9.8 ms of the 10 ms per frame, of which 2 ms reading"
        " frames, 4 ms computing" == summary(*ranks).bottleneck
    )


SHARES = st.floats(0, 3)
A_RANK = st.tuples(SHARES, SHARES, st.integers(0, 2), st.integers(1, 3), st.booleans())


@given(
    st.lists(A_RANK, min_size=1, max_size=5),
    st.floats(1e-3, 1e4),
    st.none() | st.floats(1e-2, 1e5),
    st.integers(0, 60),
)
def test_no_sentence_states_more_than_the_whole(
    shares: list[tuple[float, float, int, int, bool]],
    period_ms: float,
    fps: float | None,
    frames: int,
) -> None:
    ranks = []
    for number, (compute, cpu, core, cores, is_steady) in enumerate(shares):
        steady = {"frames": 9, "compute_share": compute, "cpu_share": cpu * cores}
        cores_of = list(range(core, core + cores))
        ranks.append({**rank(number), "cores": cores_of, "steady": steady if is_steady else None})
    records = [{**ranks[0], "source": {**SOURCE, "fps": fps}, "sink": SINK}, *ranks[1:]]
    text = summarise(measured(records), np.arange(frames) * period_ms / 1e3).bottleneck
    parts = re.findall(r"(\S+) ms of the (\S+) ms per frame", text)
    assert all(float(part) <= float(whole) for part, whole in parts), text
    core = r"busy for (\S+) ms of the .*, of which .*?(\S+) ms computing"
    for busy, computing in re.findall(core, text):
        assert float(computing) <= float(busy), text
    assert (frames > 20) == bool(parts), text


def test_the_bottleneck_is_that_of_the_route_that_most_frames_took() -> None:
    ranks = [routed(0, 9.0, 2.0, (30, 70)), routed(1, 0.0, 8.0, (0, 70))]
    run = summary(*ranks, **changes(10, 80))
    assert (
        "on the surge route (70 of 100 frames), rank 1 (board_cpu1) computes 8 ms of the 10 ms per"
        " frame; fewer layers there would make it faster" == run.bottleneck
    )
    assert ("both routes", 70, 4, 6) == (
        *(
            run.throughput_of,
            run.on_surge,
            run.window,
            run.surge_window,
        ),
    )
    run = summary(routed(0, 9.0, 2.0, (80, 20)), routed(1, 0.0, 8.0, (0, 20)), **changes(10, 30))
    assert "on the normal route (80 of 100 frames), rank 0 (board_cpu0) computes 9 ms" in (
        run.bottleneck
    )


def test_ranks_in_turn_on_the_surge_route_count_their_share_of_the_frames() -> None:
    # Each takes 18 ms for a frame, one of which comes out each 10 ms.
    halves = [
        routed(number, 0.0, 18.0, (0, 40), turns=Turns(2, (number - 1,))) for number in (1, 2)
    ]
    assert (
        "rank 1 (board_cpu1; frames 0 of 2) computes 9 ms of the 10 ms per frame"
        in summary(routed(0, 2.0, 2.0, (20, 80)), *halves, **changes(20)).bottleneck
    )


def test_frames_that_all_take_one_route_are_a_steady_state_of_it() -> None:
    ranks = [rank(0), routed(1, 0.0, 8.0, (0, 100), compute=8)]
    ranks[0]["surge"] = dict(ranks[0])
    run = summary(*ranks, **changes(0))
    assert ("steady state", 100) == (run.throughput_of, run.on_surge)
    assert run.bottleneck.startswith("rank 1 (board_cpu1) computes 8 ms of the 10 ms per frame")


def test_arrivals_from_a_file_are_what_ranks_wait_for() -> None:
    assert (
        "the source: frames arrive at the times of --arrivals;"
        " the busiest, rank 0 (board_cpu0), computes 2 ms of the 10 ms per frame"
        == summary(rank(0, compute=2), rank(1), timed_by_file=True).bottleneck
    )


def test_changes_after_each_frame_tell_no_bottleneck() -> None:
    ranks = [routed(0, 9.0, 2.0, (50, 50))]
    assert (
        "too few frames came out between two" in summary(*ranks, **changes(*range(100))).bottleneck
    )
