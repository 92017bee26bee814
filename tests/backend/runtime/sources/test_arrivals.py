"""When frames arrive, by a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from clocks import Clock

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.sources.arrivals import (
    Live,
    Pulled,
    Queries,
    Queue,
    Timed,
    max_in_a_second,
    read_arrival_times,
)


def timed(clock: Clock, *, frames: int = 10, capacity: int = 3, overflow: str = "fail") -> Timed:
    """Return arrivals every 0.5 s from 1000 s on."""
    arrivals = Timed(frames, 2.0, Queue(capacity, overflow, clock))
    assert arrivals.poll(0, 0)
    return arrivals


def test_frames_arrive_by_the_clock_and_leave_in_order_with_their_time_of_arrival() -> None:
    clock = Clock()
    arrivals = timed(clock)
    clock.now_s = 1001.25
    assert arrivals.poll(0, 0)
    assert [(0, 1000.0), (1, 1000.5), (2, 1001.0)] == [arrivals.take() for _ in range(3)]
    assert not arrivals.poll(0, 0)


def test_no_frame_waits_before_the_next_one_is_due() -> None:
    clock = Clock()
    arrivals = timed(clock)
    arrivals.take()
    clock.now_s = 1000.49
    assert not arrivals.poll(0, 0)
    assert 0.01 == pytest.approx(arrivals.pause_s())


def test_the_pause_is_never_negative_and_there_is_none_after_the_last_arrival() -> None:
    clock = Clock()
    arrivals = timed(clock, frames=2)
    clock.now_s = 1003
    assert 0.0 == arrivals.pause_s()
    assert not arrivals.is_exhausted()
    assert arrivals.pause_s() is None
    assert [0, 1] == [arrivals.take()[0] for _ in range(2)]
    assert arrivals.is_exhausted()


def overloaded(clock: Clock) -> Timed:
    """Return arrivals whose frame 2 has found two waiting, while 7 others were inside."""
    arrivals = timed(clock, capacity=2)
    clock.now_s = 1001
    assert arrivals.poll(entered=7, came_out=0)
    return arrivals


def test_a_full_queue_fails_the_job_once_a_frame_that_came_later_is_out() -> None:
    arrivals = overloaded(Clock())
    for came_out in range(8):
        arrivals.poll(entered=9, came_out=came_out)
    with pytest.raises(JobError) as error:
        arrivals.poll(entered=9, came_out=8)
    assert (
        "frame 2 arrived while 2 frames were waiting: the pipeline is slower than 2 frames/s"
        " (--overflow drop would leave frames out)" == str(error.value)
    )


def test_a_pipeline_that_stands_still_is_left_to_the_watches_for_a_while() -> None:
    clock = Clock()
    arrivals = overloaded(clock)
    clock.now_s += 39.9
    arrivals.poll(entered=7, came_out=7)
    assert 0 < arrivals.pause_s() < 1
    clock.now_s += 0.1
    with pytest.raises(JobError) as error:
        arrivals.poll(entered=7, came_out=7)
    assert (
        "frame 2 arrived while 2 frames were waiting, and no frame that entered after it has come"
        " out for 40 s" == str(error.value)
    )


def test_what_waited_when_a_frame_was_lost_still_enters_and_nothing_after_it() -> None:
    clock = Clock()
    arrivals = overloaded(clock)
    clock.now_s += 60
    assert [0, 1] == [arrivals.take()[0] for _ in range(2)]
    assert (2, 0) == arrivals.counts()
    assert not arrivals.is_exhausted()


def test_a_queue_with_room_lets_the_pipeline_take_its_time() -> None:
    clock = Clock()
    arrivals = timed(clock, frames=2)
    clock.now_s += 3600
    arrivals.poll(entered=1, came_out=0)
    assert arrivals.poll(0, 0)


def test_a_full_queue_drops_what_arrives_and_keeps_what_waits() -> None:
    clock = Clock()
    arrivals = timed(clock, capacity=2, overflow="drop")
    clock.now_s = 1001.6
    assert arrivals.poll(0, 0)
    assert [2, 3] == arrivals.dropped
    assert (4, 2) == arrivals.counts()  # what was dropped has arrived, too
    assert [0, 1] == [arrivals.take()[0] for _ in range(2)]
    clock.now_s = 1002
    assert arrivals.poll(0, 0)
    assert (4, 1002.0) == arrivals.take()


def test_a_stream_whose_last_frames_were_dropped_is_exhausted() -> None:
    clock = Clock()
    arrivals = timed(clock, frames=3, capacity=1, overflow="drop")
    clock.now_s = 1009
    arrivals.poll(0, 0)
    arrivals.take()
    assert [1, 2] == arrivals.dropped
    assert arrivals.is_exhausted()


def test_pulled_frames_arrive_when_they_are_taken_and_never_by_the_clock() -> None:
    arrivals = Pulled(2)
    assert arrivals.pause_s() is None
    assert (1, 1) == arrivals.counts()
    first = arrivals.take()
    assert (2, 1) == arrivals.counts()  # there is always one that waits
    second = arrivals.take()
    assert [0, 1] == [first[0], second[0]]
    assert first[1] <= second[1]
    assert arrivals.is_exhausted()
    assert not arrivals.poll(0, 0)
    assert [] == arrivals.dropped


def test_no_frames_at_all_are_exhausted_from_the_start() -> None:
    assert Pulled(0).is_exhausted()
    assert Timed(0, 1.0, Queue(1, "fail", Clock())).is_exhausted()


def test_frames_arrive_at_given_times() -> None:
    clock = Clock()
    arrivals = Timed(None, [0.0, 0.25, 0.25, 4.0], Queue(3, "fail", clock))
    assert not arrivals.is_exhausted()
    assert (1, 1) == arrivals.counts()
    clock.now_s = 1000.25
    assert arrivals.poll(0, 0)
    assert (3, 3) == arrivals.counts()
    assert [(0, 1000.0), (1, 1000.25), (2, 1000.25)] == [arrivals.take() for _ in range(3)]
    assert (3, 0) == arrivals.counts()
    assert 3.75 == arrivals.pause_s()
    clock.now_s = 1004.0
    assert not arrivals.is_exhausted()
    assert (3, 1004.0) == arrivals.take()
    assert arrivals.is_exhausted()
    assert arrivals.pause_s() is None


def test_given_times_bring_no_more_frames_than_there_are() -> None:
    clock = Clock()
    arrivals = Timed(2, [0.0, 0.0, 0.0], Queue(3, "fail", clock))
    assert [0, 1] == [arrivals.take()[0] for _ in range(2) if arrivals.poll(0, 0)]
    assert arrivals.is_exhausted()


def test_a_full_queue_of_frames_with_given_times_is_told() -> None:
    clock = Clock()
    arrivals = Timed(None, [0.0, 0.1, 0.2], Queue(1, "fail", clock))
    assert arrivals.poll(0, 0)
    clock.now_s = 1000.5
    assert arrivals.poll(0, 0)
    arrivals.poll(1, 0)
    with pytest.raises(JobError, match="frame 1 arrived while 1 frames were waiting"):
        arrivals.poll(2, 2)


def test_after_the_end_what_waits_still_enters_and_nothing_else_arrives() -> None:
    clock = Clock()
    arrivals = timed(clock)
    clock.now_s = 1000.5
    assert arrivals.poll(0, 0)
    arrivals.end()
    clock.now_s = 1009
    assert not arrivals.is_exhausted()
    assert [0, 1] == [arrivals.take()[0] for _ in range(2)]
    assert arrivals.is_exhausted()
    assert arrivals.pause_s() is None


def test_nothing_arrives_by_itself_after_the_end() -> None:
    arrivals = Pulled(None)
    arrivals.take()
    assert not arrivals.is_exhausted()
    arrivals.end()
    assert arrivals.is_exhausted()


def test_of_any_number_of_dropped_frames_the_first_ones_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rankslice.backend.runtime.sources.arrivals.MAX_DROPPED", 2)
    clock = Clock()
    arrivals = timed(clock, capacity=3, overflow="drop")
    clock.now_s = 1009
    assert arrivals.poll(0, 0)
    assert ([3, 4], 5) == (arrivals.dropped, arrivals.more_dropped)


def live(clock: Clock, overflow: str = "fail", frames: int | None = None) -> Live:
    """Return arrivals of which two may wait; what comes before the first look is no frame."""
    arrivals = Live(frames, Queue(2, overflow, clock))
    arrivals.arrive("too early")
    assert not arrivals.poll(0, 0)
    return arrivals


def test_frames_that_come_by_themselves_wait_with_their_time_and_content() -> None:
    clock, woken = Clock(), []
    arrivals = live(clock)
    arrivals.on_arrival = lambda: woken.append(clock.now_s)
    for clock.now_s in (1001.0, 1003.0):
        arrivals.arrive(f"seen at {clock.now_s}")
    assert (2, 2) == arrivals.counts()
    assert [1001.0, 1003.0] == woken
    assert [(0, 1001.0), (1, 1003.0)] == [arrivals.take() for _ in range(2)]
    assert {0: "seen at 1001.0", 1: "seen at 1003.0"} == arrivals.content
    assert not arrivals.is_exhausted()


def test_of_frames_that_come_by_themselves_those_without_room_are_dropped() -> None:
    arrivals = live(Clock(), "drop")
    for name in "abc":
        arrivals.arrive(name)
    arrivals.take()
    arrivals.arrive("d")
    assert ([2], {0: "a", 1: "b", 3: "d"}) == (arrivals.dropped, arrivals.content)
    arrivals.poll(3, 3)


def test_a_frame_without_room_that_may_not_be_dropped_fails_the_job() -> None:
    arrivals = live(Clock())
    for name in "abcd":
        arrivals.arrive(name)
    arrivals.poll(1, 0)
    with pytest.raises(JobError, match="frame 2 arrived while 2 frames were waiting: the"):
        arrivals.poll(2, 2)


def test_frames_come_by_themselves_up_to_a_number() -> None:
    arrivals = live(Clock(), frames=1)
    for name in "ab":
        arrivals.arrive(name)
    assert (0, 1000.0) == arrivals.take()
    assert arrivals.is_exhausted()
    arrivals.fail("gone")
    arrivals.poll(1, 1)


def test_what_ends_the_frames_is_told_after_those_that_wait() -> None:
    arrivals = live(Clock())
    arrivals.arrive("a")
    arrivals.fail("gone")
    arrivals.poll(0, 0)
    arrivals.take()
    with pytest.raises(JobError, match="gone"):
        arrivals.poll(1, 0)


def test_a_query_arrives_at_once_when_the_one_before_has_come_out() -> None:
    arrivals = Queries(5, 2)
    assert arrivals.poll(0, 0)
    first, second = arrivals.take(), arrivals.take()
    assert [0, 1] == [first[0], second[0]]
    assert first[1] == second[1]
    arrivals.poll(2, 1)
    assert arrivals.awaits_results
    assert not arrivals.poll(0, 0)
    arrivals.poll(2, 2)
    assert not arrivals.awaits_results
    third, fourth = arrivals.take(), arrivals.take()
    assert second[1] <= third[1] == fourth[1]
    arrivals.poll(4, 4)
    assert 4 == arrivals.take()[0]
    assert arrivals.is_exhausted()
    assert not arrivals.poll(0, 0)


@pytest.mark.parametrize(
    ("text", "times_s"),
    [
        ("# a camera\n0\n0.5  # the second frame\n\n  0.5\n1e1\n", [0.0, 0.5, 0.5, 10.0]),
        ("# nothing comes\n", []),
    ],
)
def test_a_trace_has_a_time_a_line_and_comments(
    tmp_path: Path, text: str, times_s: list[float]
) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    assert times_s == read_arrival_times(path)


@pytest.mark.parametrize("line", ["x", "nan", "inf", "-1", "0.5 s", "0.5,0.6", "0.25", "0x1"])
def test_a_line_that_is_no_later_time_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(f"# times\n0.5\n{line}\n1.0\n")
    with pytest.raises(JobError) as error:
        read_arrival_times(path)
    fault = "0.25 comes after 0.5" if line == "0.25" else f"{line!r} is not a time"
    assert f"{path}, line 3: {fault}" == str(error.value)


def test_a_trace_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobError) as error:
        read_arrival_times(tmp_path / "trace.txt")
    assert f"{tmp_path}/trace.txt: No such file or directory" == str(error.value)
    (tmp_path / "trace.bin").write_bytes(b"\xff\xfe0\n")
    with pytest.raises(JobError) as error:
        read_arrival_times(tmp_path / "trace.bin")
    assert f"{tmp_path}/trace.bin: not a text" == str(error.value)


@pytest.mark.parametrize(
    ("times_s", "most"),
    [([], 0), ([5.0], 1), ([0.0, 0.5, 1.0], 2), ([0.0, 0.5, 0.9, 1.4, 1.45], 4), ([1.0] * 7, 7)],
)
def test_the_most_arrivals_in_a_second_are_counted(times_s: list[float], most: int) -> None:
    assert most == max_in_a_second(times_s)
