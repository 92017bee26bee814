"""The two clocks that find hangs, with time and messages in the test's hands."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import pytest
from clocks import Clock

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.events import COMPUTE
from rankslice.backend.runtime.job import Rank
from rankslice.backend.runtime.pipeline.executor import Executor
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.watch import (
    Heartbeat,
    ProgressWatch,
    StarvationWatch,
    Ticker,
)
from rankslice.backend.runtime.pipeline.wiring import BEAT


def tick(heartbeat: Heartbeat, step: str) -> None:
    heartbeat.beat(step)
    heartbeat.tick()


def ranks(count: int, board: str = "edge{}") -> list[Rank]:
    return [
        Rank(
            number,
            f"edge{number}_cpu0",
            board.format(number),
            f"10.0.0.{number}",
            "cpu",
            (),
            "",
            {},
        )
        for number in range(count)
    ]


def heartbeat_of(specs: Sequence[Rank], rank: int, processes: Sequence[int] = ()) -> Heartbeat:
    return Heartbeat(specs, rank, Ring(BEAT, 2, 1), Ring(BEAT, 2, 1), processes)


def carry(sender: Heartbeat, receiver: Heartbeat) -> None:
    """Bring all beats of one rank to the next, as the communication loop would."""
    sent, received = sender._beats, receiver._heard
    while sent.read[0] < sent.written:
        received.slots[received.written % received.depth][:] = sent.slots[sent.read[0] % sent.depth]
        sent.read[0] += 1
        received.written += 1
    received.end = sent.end


def tick_and_beat_seldom(
    sender: Heartbeat, watcher: Heartbeat, *, ticks: int, ticks_a_beat: int
) -> None:
    """Let the watcher tick again and again, and the sender in some of these ticks alone."""
    for number in range(ticks):
        if number % ticks_a_beat == 0:
            tick(sender, "")
            carry(sender, watcher)
            carry(watcher, sender)
            sender.listen()
        watcher.listen()
        tick(watcher, "")


def test_a_tick_is_due_once_a_second() -> None:
    clock = Clock()
    ticker = Ticker(clock=clock)
    due = []
    for _ in range(40):
        clock.now_s += 0.125
        due.append(ticker.is_due())
    assert 5 == sum(due)
    assert [7, 15, 23, 31, 39] == [look for look, is_due in enumerate(due) if is_due]


def test_a_watcher_without_processor_time_ticks_once_however_long_it_was_away() -> None:
    clock = Clock()
    ticker = Ticker(clock=clock)
    clock.now_s += 3600
    assert [True, False, False] == [ticker.is_due() for _ in range(3)]
    clock.now_s += 0.999
    assert not ticker.is_due()


def test_a_watcher_without_processor_time_raises_no_alarm() -> None:
    clock = Clock()
    ticker = Ticker(clock=clock)
    first, second = (heartbeat_of(ranks(2), rank) for rank in range(2))
    for _ in range(20):
        clock.now_s += 60
        # Both ranks get the processor once a minute only, and then look several times.
        for _ in range(3):
            if ticker.is_due():
                tick(first, "segment 0, frame 1")
                carry(first, second)
                second.listen()
                tick(second, "")
                carry(second, first)
                first.listen()


def test_five_ticks_without_a_beat_name_the_silent_rank_and_where_it_was() -> None:
    silent, watcher = (heartbeat_of(ranks(3), rank) for rank in (1, 2))
    tick(silent, "segment 0, frame 17")
    carry(silent, watcher)
    watcher.listen()
    for _ in range(5):  # the first one counts the beat that was heard
        tick(watcher, "")
    with pytest.raises(JobError) as error:
        tick(watcher, "")
    assert (
        "no sign of life for 5 s from rank 1 (edge1_cpu0 on 10.0.0.1), last heard at"
        " segment 0, frame 17: it is stopped, overloaded, or cannot be reached"
    ) == str(error.value)


def test_a_rank_that_was_never_heard_was_last_at_its_start() -> None:
    watcher = heartbeat_of(ranks(3), 0)
    for _ in range(4):
        tick(watcher, "")
    with pytest.raises(
        JobError, match=r"rank 2 \(edge2_cpu0 on 10\.0\.0\.2\), last heard at its start:"
    ):
        tick(watcher, "")


def test_one_beat_in_five_ticks_is_enough() -> None:
    sender, watcher = (heartbeat_of(ranks(2), rank) for rank in range(2))
    tick_and_beat_seldom(sender, watcher, ticks=50, ticks_a_beat=5)


def test_a_rank_that_has_finished_is_not_missed() -> None:
    finished, watcher = (heartbeat_of(ranks(2), rank) for rank in range(2))
    tick(finished, "")
    finished.finish()
    carry(finished, watcher)
    for _ in range(50):
        watcher.listen()
        tick(watcher, "")


def test_a_finished_rank_beats_no_more() -> None:
    heartbeat = heartbeat_of(ranks(2), 0)
    heartbeat.finish()
    tick(heartbeat, "segment 0, frame 1")
    assert 0 == heartbeat._beats.written == heartbeat._beats.end


def test_each_beat_and_the_end_of_all_beats_call_once_for_somebody_to_send_them() -> None:
    calls: list[int] = []
    beats = Ring(BEAT, 2, 1)
    beats.on_written = (lambda: calls.append(beats.written),)
    heartbeat = Heartbeat(ranks(2), 0, beats, Ring(BEAT, 2, 1))
    heartbeat.beat("segment 0, frame 1")
    for _ in range(3):
        heartbeat.finish()
    assert [1, 1] == calls


def test_a_rank_that_hears_nothing_does_not_pile_up_beats() -> None:
    heartbeat = heartbeat_of(ranks(2), 0)
    for _ in range(4):
        tick(heartbeat, "")
    assert heartbeat._beats.depth == heartbeat._beats.written


def test_a_job_of_one_rank_has_nobody_to_listen_to() -> None:
    heartbeat = heartbeat_of(ranks(1), 0)
    for _ in range(50):
        tick(heartbeat, "segment 0, frame 1")
    assert heartbeat.has_ended


@pytest.mark.parametrize(
    "step", ["", "segment 0, frame 1" + "0" * 80, "Segment ❄, frame 1", "❄" * 40]
)
def test_any_name_of_a_step_fits_into_a_beat(step: str) -> None:
    sender, watcher = (heartbeat_of(ranks(2), rank) for rank in range(2))
    tick(sender, step)
    carry(sender, watcher)
    watcher.listen()
    for _ in range(5):
        tick(watcher, "")
    with pytest.raises(JobError, match="no sign of life"):
        tick(watcher, "")


def ticks_of_silence(
    monkeypatch: pytest.MonkeyPatch,
    starved: Sequence[bool],
    board: str = "edge",
    process: int | None = None,
) -> tuple[int, str]:
    """Return the tick of the alarm, where the silent rank lacks a core in some ticks."""
    answers = iter(starved)
    monkeypatch.setattr(StarvationWatch, "is_starved", lambda self: next(answers))
    silent_process = os.getppid() if process is None else process
    processes = (0, silent_process, os.getpid())
    watcher = heartbeat_of(ranks(3, board), 2, processes)
    for number in range(1, 1 + len(starved)):
        try:
            tick(watcher, "")
        except JobError as error:
            return number, str(error)
    pytest.fail("no alarm")


def test_a_rank_that_gets_no_core_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    number, message = ticks_of_silence(monkeypatch, [*[False, True, True, True] * 4, False])
    assert 17 == number
    assert (
        "no sign of life for 17 s from rank 1 (edge1_cpu0 on 10.0.0.1), last heard at its start: it"
        " is stopped, overloaded, or cannot be reached"
    ) == message


def test_a_rank_that_gets_no_core_for_half_a_minute_ends_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number, message = ticks_of_silence(monkeypatch, [True] * 40)
    assert 30 == number
    assert (
        "no sign of life for 30 s from rank 1 (edge1_cpu0 on 10.0.0.1), last heard at its start:"
        " other work on its cores leaves it no processor time"
    ) == message


def test_a_process_of_another_board_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 5 == ticks_of_silence(monkeypatch, [True] * 40, board="edge{}")[0]


def test_a_rank_in_the_process_of_the_watcher_has_what_that_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 5 == ticks_of_silence(monkeypatch, [True] * 40, process=os.getpid())[0]


def test_a_beat_ends_the_count_of_ticks_without_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StarvationWatch, "is_starved", lambda self: True)
    processes = (os.getppid(), os.getpid())
    sender = heartbeat_of(ranks(2, "edge"), 0)
    watcher = heartbeat_of(ranks(2, "edge"), 1, processes)
    tick_and_beat_seldom(sender, watcher, ticks=200, ticks_a_beat=25)


BUSY = "while True: pass"


@contextmanager
def child(code: str, *, is_idle: bool = False) -> Iterator[psutil.Process]:
    """Run Python code in a process on this machine's first core."""
    settle = (
        f"import os, threading, time; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})"
    )
    idle = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))" if is_idle else ""
    text = "\n".join([settle, idle, "print(flush=True)", code])
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def is_starved(process: psutil.Process) -> bool:
    watch = StarvationWatch(process.pid)
    time.sleep(1)
    return watch.is_starved()


def test_a_process_that_others_keep_from_its_core_is_starved() -> None:
    with child(BUSY, is_idle=True) as starved, child(BUSY), child(BUSY):
        assert is_starved(starved)


def test_so_is_one_whose_main_thread_waits_for_another_of_its_threads() -> None:
    both = "thread = threading.Thread(target=lambda: [0 for _ in iter(int, 1)])"
    both += "; thread.start(); thread.join()"
    with child(both, is_idle=True) as starved, child(BUSY), child(BUSY):
        assert is_starved(starved)


@pytest.mark.parametrize("code", [BUSY, "time.sleep(60)"])
def test_a_process_that_runs_or_waits_is_not_starved(code: str) -> None:
    with child(code) as process:
        assert not is_starved(process)


def test_a_stopped_process_is_not_starved() -> None:
    with child(BUSY) as process:
        process.send_signal(signal.SIGSTOP)
        assert not is_starved(process)


def test_a_process_that_has_ended_is_not_starved() -> None:
    with child(BUSY) as process:
        pass
    assert not is_starved(process)


class Gate:
    """A stage whose steps end when the test says so."""

    finished = False
    frame = 17
    route = ""
    way = 0
    kind = COMPUTE
    index = 0
    precedence = 1
    is_clocked = False
    lacks = ""
    took_s = 0.0

    def __init__(self) -> None:
        self._begun = threading.Semaphore(0)
        self._may_end = threading.Semaphore(0)

    def is_ready(self) -> bool:
        return True

    def step(self) -> None:
        self._begun.release()
        self._may_end.acquire()

    def pause_s(self) -> None:
        return None

    def describe(self) -> str:
        return "segment 1"

    def wait_for_begin(self) -> None:
        assert self._begun.acquire(timeout=60)

    def let_go(self) -> None:
        self._may_end.release()


@contextmanager
def running(gate: Gate) -> Iterator[Executor]:
    """Run a gate in a thread of its own; its first step has begun."""
    executor = Executor("compute", [gate], on_failure=lambda stage, error: None)
    executor.start()
    gate.wait_for_begin()
    try:
        yield executor
    finally:
        executor.stop()
        gate.let_go()
        executor.join(60)


def ticks_until_alarm(watch: ProgressWatch) -> tuple[int, str]:
    for tick in range(10_000):
        try:
            watch.tick()
        except JobError as error:
            return tick, str(error)
    pytest.fail("no alarm")


def test_a_step_may_take_half_a_minute_by_default() -> None:
    with running(Gate()) as executor:
        ticks, message = ticks_until_alarm(ProgressWatch(executor, None))
    # The first tick sees the step begin.
    assert 31 == ticks
    assert (
        "segment 1, frame 17: not finished after 31 s (--frame-timeout sets the limit)" == message
    )


def test_a_slow_step_lets_later_ones_take_twenty_times_as_long() -> None:
    with running(Gate()) as executor:
        executor.slowest_s = 4.0
        ticks, _ = ticks_until_alarm(ProgressWatch(executor, None))
    assert 81 == ticks


@pytest.mark.parametrize("limit_s", [0.5, 2.0, 100.0])
def test_the_limit_that_was_asked_for_overrides_both(limit_s: float) -> None:
    with running(Gate()) as executor:
        executor.slowest_s = 4.0
        ticks, message = ticks_until_alarm(ProgressWatch(executor, limit_s))
    assert math.floor(limit_s) + 1 == ticks
    assert f"not finished after {ticks} s" in message


def test_each_step_has_the_whole_time() -> None:
    gate = Gate()
    with running(gate) as executor:
        watch = ProgressWatch(executor, 3)
        for _ in range(10):
            for _ in range(3):
                watch.tick()
            gate.let_go()
            gate.wait_for_begin()


def test_a_rank_that_waits_for_its_inputs_takes_no_time() -> None:
    executor = Executor("compute", [Gate()], on_failure=lambda stage, error: None)
    watch = ProgressWatch(executor, 1)
    for _ in range(100):
        watch.tick()
