"""Samples of boards, kept and summed up."""

from __future__ import annotations

import math

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.measurement.board_history import MAX_SAMPLES, HardwareLog


def sample(second: int, *, busy: bool = True, **values: float) -> Sample:
    rate = {"frames_per_s.rank0": 20.0} if busy else {}
    return Sample(second, {**values, **rate}, ("power",))


def test_only_samples_count_in_which_frames_went_through() -> None:
    log = HardwareLog(["edge01", "edge02"])
    log.add("edge02", sample(7, busy=False))
    log.add("edge01", sample(0, busy=False, memory_available_mb=9000))
    for second, memory in enumerate((300.0, 100.0, 500.0), 1):
        log.add("edge01", sample(second, memory_available_mb=memory))
    log.add("edge01", Sample(4, {"memory_available_mb": 10, "frames_per_s.rank0": 0.0}))
    first, second_board = log.summaries()
    assert ("edge01", 3, ()) == (first.board, first.samples, first.absent)
    assert {"min": 100.0, "mean": 300.0, "max": 500.0} == first.series["memory_available_mb"]
    assert ("edge02", 0, {}) == (second_board.board, second_board.samples, second_board.series)


def test_a_history_has_every_sample_with_its_time() -> None:
    log = HardwareLog()
    log.add("edge01", sample(5, a=1))
    log.add("edge01", sample(6, b=2))
    (history,) = log.histories()
    assert (5, 6) == history.times_ns
    assert 1 == history.series["a"][0]
    assert math.isnan(history.series["a"][1])
    assert math.isnan(history.series["b"][0])
    assert ("power",) == history.absent


def test_a_long_run_is_kept_more_coarsely_and_its_extremes_are_not_lost() -> None:
    log = HardwareLog()
    for second in range(5 * MAX_SAMPLES):
        log.add("edge01", sample(second, temperature_c=99.0 if second == 4001 else 50.0))
    (history,), (summary,) = log.histories(), log.summaries()
    steps = {b - a for a, b in zip(history.times_ns, history.times_ns[1:], strict=False)}
    assert {8} == steps
    assert len(history.times_ns) <= MAX_SAMPLES
    assert 99.0 == summary.series["temperature_c"]["max"]


def test_series_of_a_quantity_are_found_by_part() -> None:
    log = HardwareLog()
    log.add("edge01", Sample(1, {"frames_per_s.rank0": 1.0, "power_w": 5.0, "power_w2.x": 1.0}))
    (summary,) = log.summaries()
    assert [""] == [*summary.of("power_w")]
    assert ["rank0"] == [*summary.of("frames_per_s")]
