"""When the next frame is due, with a clock in the test's hands."""

from __future__ import annotations

from random import Random

import pytest

from rankslice.backend.runtime.pipeline.waiting import ArrivalPredictor

PERIOD_NS = 10_000_000
MAX_EARLY_S = 0.03 * 1e-9 * PERIOD_NS
FRAMES = 20


class Clock:
    """Nanoseconds that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def fed(
    *sent_ns: int, channel: int = 1, predictor: ArrivalPredictor | None = None
) -> tuple[ArrivalPredictor, Clock]:
    """Return what knows of some frames, with the clock at the last of them."""
    clock = Clock()
    found = predictor or ArrivalPredictor(clock)
    for each in sent_ns:
        found.note(channel, each)
    clock.now_ns = max(sent_ns)
    return found, clock


def steady(frames: int = FRAMES) -> list[int]:
    return [PERIOD_NS * frame for frame in range(frames)]


def test_at_a_steady_rate_the_thread_wakes_a_little_before_the_next_frame() -> None:
    found, _ = fed(*steady())
    sleep_s = found.sleep_s()
    assert sleep_s is not None
    assert 0 < 1e-9 * PERIOD_NS - sleep_s <= MAX_EARLY_S


def test_times_that_vary_a_little_are_a_steady_rate() -> None:
    random = Random(1)
    found, clock = fed(*(each + random.randint(-50_000, 50_000) for each in steady()))
    sleep_s = found.sleep_s()
    assert sleep_s is not None
    due_s = 1e-9 * (PERIOD_NS * FRAMES - clock.now_ns)
    assert due_s - sleep_s == pytest.approx(0, abs=MAX_EARLY_S + 100e-6)


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_few_frames_predict_nothing(frames: int) -> None:
    found, _ = fed(*steady(frames))
    assert found.sleep_s() is None
    assert not found.stays_awake()


def test_frames_that_follow_each_other_at_once_predict_nothing() -> None:
    found, _ = fed(*range(0, 100_000 * FRAMES, 100_000))
    assert found.sleep_s() is None


def test_frames_without_a_rhythm_predict_nothing() -> None:
    random = Random(1)
    found, _ = fed(*sorted(random.randrange(PERIOD_NS * FRAMES) for _ in range(FRAMES)))
    assert found.sleep_s() is None


def test_the_thread_stays_awake_around_the_time_and_sleeps_if_no_frame_comes() -> None:
    found, clock = fed(*steady())
    sleep_s = found.sleep_s()
    assert sleep_s is not None
    assert not found.stays_awake()
    clock.now_ns += round(1e9 * sleep_s) + 1
    assert found.stays_awake()
    clock.now_ns = PERIOD_NS * FRAMES + PERIOD_NS // 10
    assert not found.stays_awake()
    assert found.sleep_s() is None


def test_sleeps_that_end_late_make_it_wake_earlier_up_to_a_share_of_the_period() -> None:
    found, clock = fed(*steady())
    first_s = found.sleep_s()
    assert first_s is not None
    clock.now_ns += round(1e9 * first_s) + 150_000
    found.note_wake()
    found.note(1, PERIOD_NS * FRAMES)
    clock.now_ns = PERIOD_NS * FRAMES
    second_s = found.sleep_s()
    assert second_s is not None
    assert second_s < first_s
    assert 1e-9 * PERIOD_NS - second_s <= MAX_EARLY_S + 1e-9


def test_of_several_channels_the_next_frame_counts() -> None:
    clock = Clock()
    found = ArrivalPredictor(clock)
    for each in steady():
        found.note(1, each)
        found.note(2, each + PERIOD_NS // 2)
    clock.now_ns = PERIOD_NS * (FRAMES - 1) + PERIOD_NS // 2
    sleep_s = found.sleep_s()
    assert sleep_s is not None
    assert sleep_s < 0.5e-9 * PERIOD_NS
