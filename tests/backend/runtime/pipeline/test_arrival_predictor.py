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
    predictor = predictor or ArrivalPredictor(clock)
    for sent in sent_ns:
        predictor.note(channel, sent)
    clock.now_ns = max(sent_ns)
    return predictor, clock


def steady(frames: int = FRAMES) -> list[int]:
    return [PERIOD_NS * frame for frame in range(frames)]


def test_at_a_steady_rate_the_thread_wakes_a_little_before_the_next_frame() -> None:
    predictor, _ = fed(*steady())
    sleep_s = predictor.sleep_s()
    assert sleep_s is not None
    assert 0 < 1e-9 * PERIOD_NS - sleep_s <= MAX_EARLY_S


def test_times_that_vary_a_little_are_a_steady_rate() -> None:
    random = Random(1)
    predictor, clock = fed(*(sent + random.randint(-50_000, 50_000) for sent in steady()))
    sleep_s = predictor.sleep_s()
    assert sleep_s is not None
    due_s = 1e-9 * (PERIOD_NS * FRAMES - clock.now_ns)
    assert due_s - sleep_s == pytest.approx(0, abs=MAX_EARLY_S + 100e-6)


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_few_frames_predict_nothing(frames: int) -> None:
    predictor, _ = fed(*steady(frames))
    assert predictor.sleep_s() is None
    assert not predictor.stays_awake()


def test_frames_that_follow_each_other_at_once_predict_nothing() -> None:
    predictor, _ = fed(*range(0, 100_000 * FRAMES, 100_000))
    assert predictor.sleep_s() is None


def test_frames_without_a_rhythm_predict_nothing() -> None:
    random = Random(1)
    predictor, _ = fed(*sorted(random.randrange(PERIOD_NS * FRAMES) for _ in range(FRAMES)))
    assert predictor.sleep_s() is None


def test_the_thread_stays_awake_around_the_time_and_sleeps_if_no_frame_comes() -> None:
    predictor, clock = fed(*steady())
    sleep_s = predictor.sleep_s()
    assert sleep_s is not None
    assert not predictor.stays_awake()
    clock.now_ns += round(1e9 * sleep_s) + 1
    assert predictor.stays_awake()
    clock.now_ns = PERIOD_NS * FRAMES + PERIOD_NS // 10
    assert not predictor.stays_awake()
    assert predictor.sleep_s() is None


def test_sleeps_that_end_late_make_it_wake_earlier_up_to_a_share_of_the_period() -> None:
    predictor, clock = fed(*steady())
    first_s = predictor.sleep_s()
    assert first_s is not None
    clock.now_ns += round(1e9 * first_s) + 150_000
    predictor.note_wake()
    predictor.note(1, PERIOD_NS * FRAMES)
    clock.now_ns = PERIOD_NS * FRAMES
    second_s = predictor.sleep_s()
    assert second_s is not None
    assert second_s < first_s
    assert 1e-9 * PERIOD_NS - second_s <= MAX_EARLY_S + 1e-9


def test_of_several_channels_the_next_frame_counts() -> None:
    clock = Clock()
    predictor = ArrivalPredictor(clock)
    for sent in steady():
        predictor.note(1, sent)
        predictor.note(2, sent + PERIOD_NS // 2)
    clock.now_ns = PERIOD_NS * (FRAMES - 1) + PERIOD_NS // 2
    sleep_s = predictor.sleep_s()
    assert sleep_s is not None
    assert sleep_s < 0.5e-9 * PERIOD_NS
