"""Who polls MPI and when, and what the threads of a rank do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from clocks import Clock
from jobs import FIGURE_2_RANKS, build_folder, figure_2
from twin import ThreadLinks, TwinTransport

from rankslice.backend.runtime.direct.tokens import WRITTEN
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.events import COMPUTE
from rankslice.backend.runtime.frame_records import Failure
from rankslice.backend.runtime.job import EACH, Steps, Tensor, Turns
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline import (
    executor as executor_module,
    loop as loop_module,
    waiting,
)
from rankslice.backend.runtime.pipeline.direct_channels import NEWS, Post
from rankslice.backend.runtime.pipeline.executor import Executor
from rankslice.backend.runtime.pipeline.loop import CommunicationLoop, Incoming, Outgoing
from rankslice.backend.runtime.pipeline.rank import run_rank
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.stages import Input
from rankslice.backend.runtime.pipeline.waiting import (
    LATENCY_PAUSE_S,
    Backoff,
    Waiter,
    Watched,
    computing_pause_s,
)
from rankslice.backend.runtime.transport import Completion, Lane
from rankslice.framework.reading.read_driver import read_driver

SMALL, LARGE = 64, 1 << 20


def ring(nbytes: int, depth: int = 2) -> Ring:
    return Ring(Tensor("t", "uint8", (nbytes,)), depth, 1)


class Mailbox:
    """A transport whose finished receives the test names."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.finished: list[Completion] = []
        self.polls = 0

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        pass

    def send(self, lane: int, slot: int) -> None:
        pass

    def send_end(self, lane: int) -> None:
        pass

    def receive(self, lane: int, slot: int) -> None:
        pass

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        self.polls += 1
        received, self.finished = self.finished, []
        return [], received

    def exchange(self, record: bytes) -> list[bytes]:
        return [record]

    def send_number(self, peer: int, number: int) -> None:
        pass

    def receive_number(self, peer: int) -> int:
        return 0

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.mark.parametrize(
    ("step_s", "large_bytes", "pause_s"),
    [
        (3e-3, 0, 0.2),
        (1.0, 0, 25e-3),
        (0.0, 0, 25e-3),
        (8e-3, LARGE, 8e-3 / 12),
        (4e-3, LARGE, 500e-6),
        (8e-3, 4 * LARGE, 500e-6),
        (3e-3, LARGE // 8, 3e-3 / 5),
        (40e-3, LARGE, 2e-3),
        (0.3e-3, LARGE, 0.2),
    ],
)
def test_a_rank_that_computes_polls_as_often_as_a_large_message_needs(
    step_s: float, large_bytes: int, pause_s: float
) -> None:
    assert pause_s == computing_pause_s(step_s, large_bytes)


def waits(
    backoff: Backoff, clock: list[float], seconds: float, *, moves_large: bool = False
) -> list[float]:
    """Let a rank wait for some time, then compute; return its sleeps in seconds."""
    backoff.reset()
    backoff.begin_wait()
    end, pauses = clock[0] + seconds, []
    while clock[0] < end:
        pauses.append(backoff.pause_s(moves_large=moves_large))
        clock[0] += pauses[-1]
    backoff.end_wait()
    return pauses


def test_a_rank_that_waits_sleeps_for_a_small_share_of_the_time() -> None:
    clock = [0.0]
    pauses = waits(Backoff(clock=lambda: clock[0]), clock, 10e-3)
    assert 20e-6 == pauses[0]
    assert sorted(pauses) == pauses
    assert pauses[-1] <= 10e-3 / 32


def test_a_rank_that_waits_as_long_as_before_polls_seldom_until_then() -> None:
    clock = [0.0]
    backoff = Backoff(clock=lambda: clock[0])
    first = waits(backoff, clock, 10e-3)
    second = waits(backoff, clock, 10e-3)
    assert pytest.approx(2.5e-3, rel=0.1) == second[0]
    assert len(second) < len(first) / 4
    assert min(second[-2:]) <= 10e-3 / 32


def test_the_shortest_of_the_last_waits_counts() -> None:
    clock = [0.0]
    backoff = Backoff(clock=lambda: clock[0])
    for seconds in (1e-3, 10e-3):
        waits(backoff, clock, seconds)
    assert pytest.approx(0.25e-3, rel=0.1) == waits(backoff, clock, 10e-3)[0]
    for _ in range(8):
        waits(backoff, clock, 10e-3)
    assert pytest.approx(2.5e-3, rel=0.1) == waits(backoff, clock, 10e-3)[0]


def test_a_large_message_under_way_is_not_left_alone() -> None:
    clock = [0.0]
    backoff = Backoff(clock=lambda: clock[0])
    waits(backoff, clock, 10e-3)
    assert 500e-6 == waits(backoff, clock, 10e-3, moves_large=True)[0]


def test_with_latency_a_rank_that_waits_sleeps_shortly() -> None:
    clock = [0.0]
    backoff = Backoff(LATENCY_PAUSE_S, lambda: clock[0])
    for _ in range(2):
        assert 50e-6 == max(waits(backoff, clock, 10e-3))


@pytest.mark.parametrize(("channel", "moves"), [(1, True), (0, True), (-1, False)])
def test_frames_and_credits_make_the_loop_poll_more_often_but_heartbeats_do_not(
    channel: int, moves: bool
) -> None:
    mailbox = Mailbox()
    arrivals = ring(SMALL)
    loop = CommunicationLoop(mailbox, [], [Incoming(channel, 1, arrivals)])
    loop.poll()  # posts the receives
    mailbox.finished = [Completion(0, 0, nbytes=SMALL)]
    assert moves == loop.poll()
    assert 1 == arrivals.written


class Counting:
    """A stage that does some frames, and wakes its own thread after each."""

    finished = False
    route = ""
    way = 0
    kind = COMPUTE
    index = 0
    precedence = 1
    is_clocked = False
    lacks = ""
    took_s = 0.0

    def __init__(self, frames: int, *, sends: bool = False, takes_s: float = 0.0) -> None:
        self.frame = 0
        self.frames = frames
        self.sends = sends
        self.takes_s = takes_s
        self.executor: Executor | None = None

    def is_ready(self) -> bool:
        return self.frame < self.frames

    def step(self) -> None:
        self.frame += 1
        time.sleep(self.takes_s)
        assert self.executor is not None
        self.executor.wake()
        if self.sends:
            self.executor.poll_soon()

    def pause_s(self) -> float | None:
        return None

    def describe(self) -> str:
        return "counting"


class Letterbox:
    """Messages that bring another frame for a stage at some of its thread's polls."""

    def __init__(self, stage: Counting, brings_at: set[int], polls: int) -> None:
        self.stage = stage
        self.brings_at = brings_at
        self.polls = polls
        self.seen: list[tuple[int, bool]] = []
        """For each poll: frames done by then, and whether the thread waited."""
        self.begun_steps = self.begun_waits = self.waits = 0

    def poll(self) -> bool:
        executor = self.stage.executor
        assert executor is not None
        self.seen.append((self.stage.frame, executor.is_waiting))
        if len(self.seen) == self.polls:
            executor.stop()
        brings = len(self.seen) in self.brings_at
        self.stage.frames += brings
        return brings

    def begin_step(self, step_s: float) -> None:
        self.begun_steps += 1

    def begin_wait(self) -> None:
        self.begun_waits += 1

    def pause_s(self) -> float:
        return 1e-3

    def end_wait(self) -> None:
        self.waits += 1


@pytest.fixture
def short_step_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Return a time that no step without sleep takes on a busy machine; longer ones are long."""
    monkeypatch.setattr(executor_module, "_SHORT_STEP_S", 50e-3)
    return 50e-3


@pytest.mark.parametrize("is_long", [False, True])
def test_the_thread_that_computes_polls_between_steps_and_while_it_waits(
    is_long: bool, short_step_s: float
) -> None:
    stage = Counting(2, sends=not is_long, takes_s=2 * short_step_s * is_long)
    letterbox, executor = polled(stage, polls=7)
    last, waiting = (2, not is_long), [(2, True), (2, True)]
    assert [(1, False), last, *waiting, (3, not is_long), (3, True), (3, True)] == letterbox.seen
    assert 3 == letterbox.begun_steps
    assert 2 == letterbox.begun_waits == letterbox.waits
    assert "counting, frame 3" == executor.at
    assert executor.step_s > 0


@pytest.mark.usefixtures("short_step_s")
def test_an_older_frame_that_a_poll_between_steps_brings_comes_first() -> None:
    order = []

    class Ordered(Counting):
        def step(self) -> None:
            order.append((self.name, self.frame))
            super().step()

    stages = []
    for name, first, last in (("ahead", 5, 8), ("behind", 0, 0)):
        stage = Ordered(last, sends=name == "ahead")
        stage.name, stage.frame = name, first
        stages.append(stage)
    executor = Executor("compute", stages, on_failure=lambda *_: None)
    for stage in stages:
        stage.executor = executor
    executor.start(Letterbox(stages[1], brings_at={1}, polls=4))
    executor.join(10)
    assert [("ahead", 5), ("behind", 0), ("ahead", 6), ("ahead", 7)] == order


@pytest.mark.usefixtures("short_step_s")
def test_a_sink_comes_before_segments_and_these_before_a_source_whatever_they_count() -> None:
    order = []

    class Ordered(Counting):
        def step(self) -> None:
            order.append((self.precedence, self.frame))
            super().step()

    stages = []
    for precedence, first, last in ((1, 7, 8), (2, 0, 2), (1, 3, 5), (0, 90, 92)):
        stage = Ordered(last)
        stage.precedence, stage.frame = precedence, first
        stages.append(stage)
    executor = Executor("compute", stages, on_failure=lambda *_: None)
    for stage in stages:
        stage.executor = executor
    executor.start(Letterbox(stages[0], brings_at=set(), polls=1))
    executor.join(10)
    assert [(0, 90), (0, 91), (1, 3), (1, 4), (1, 7), (2, 0), (2, 1)] == order


def test_a_thread_sleeps_as_long_as_it_is_told_after_its_last_poll() -> None:
    stage = Counting(0)

    class Rousing(Letterbox):
        def poll(self) -> bool:
            super().poll()
            return len(self.seen) == 1

        def pause_s(self) -> float:
            return 1e-3 if self.seen else 60.0

    executor = Executor("compute", [stage], on_failure=lambda *_: None)
    stage.executor = executor
    letterbox = Rousing(stage, brings_at=set(), polls=4)
    executor.start(letterbox)
    executor.join(30)
    assert 4 == len(letterbox.seen)


def test_a_thread_does_not_sleep_when_its_own_poll_has_made_a_stage_ready() -> None:
    stage = Counting(0)
    slept_at: list[int] = []

    class Silent(Letterbox):
        """Its polls bring frames, but move no message: as when they take credits."""

        def poll(self) -> bool:
            super().poll()
            return False

        def pause_s(self) -> float:
            slept_at.append(len(self.seen))
            return 1e-3

    executor = Executor("compute", [stage], on_failure=lambda *_: None)
    stage.executor = executor
    executor.start(Silent(stage, brings_at={2, 4}, polls=6))
    executor.join(30)
    assert 2 == stage.frame
    assert not {2, 4} & set(slept_at)


def test_a_thread_that_is_awake_for_a_frame_takes_it_though_it_was_woken_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "_MARGIN", 1e6)  # awake 30 s before a frame is due
    taken = threading.Event()
    post = Post()
    post.inboxes[NEWS].expect(1)
    post.inboxes[NEWS].handle(WRITTEN, 1, lambda _: taken.set())
    executor = Executor(
        "compute", [Counting(0)], on_failure=lambda *_: None, post=post, predicts=True
    )
    assert post.inboxes[NEWS].on_stamp is not None
    for frame in range(-8, 0):
        post.inboxes[NEWS].on_stamp(1, time.monotonic_ns() + 10**12 * frame + 10**10)
    executor.start()
    executor.wake()
    post.outbox.add_written(ring(SMALL), post.inboxes[NEWS].entry, 1)
    time.sleep(0.05)
    post.outbox.flush()
    came = taken.wait(5)
    executor.stop()
    executor.join(10)
    post.inboxes[NEWS].close()
    assert came


@pytest.mark.parametrize("window", [1, 2])
def test_a_rank_alone_with_one_core_always_has_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    folder = build_folder(tmp_path, figure_2(), dict.fromkeys(FIGURE_2_RANKS, 0))
    job = read_driver(folder / "driver.py")
    job = replace(job, ranks=(replace(job.ranks[0], cores=(0,)),))
    options = RunOptions(results=folder / "results.bin", frames=50, window=window, bind=False)
    asleep: list[str] = []

    monkeypatch.setattr(Executor, "_wait", lambda executor: asleep.append(executor.at))
    (record,) = run_rank(job, folder, options, ThreadLinks(1).transport(0))
    assert (50, []) == (record.source.frames, asleep)


def test_the_main_thread_does_not_sleep_when_its_own_poll_has_ended_the_last_channel() -> None:
    mailbox = Mailbox()
    mailbox.finished = [Completion(0, 0, is_end=True)]
    loop = CommunicationLoop(mailbox, [], [Incoming(1, 1, ring(SMALL))])
    slept = []

    class Sleeping(Waiter):
        def wait(self, timeout_s: float | None = None, also: Sequence[Watched] = ()) -> bool:
            slept.append(timeout_s)
            return super().wait(timeout_s, also)

    loop._waiter = Sleeping()
    loop.run(lambda: True)
    assert [] == slept


@pytest.mark.usefixtures("short_step_s")
def test_after_a_short_step_that_has_nothing_to_send_nobody_polls() -> None:
    letterbox, _ = polled(Counting(2), polls=6)
    assert [(2, True)] * 4 + [(3, True)] * 2 == letterbox.seen


def polled(stage: Counting, polls: int) -> tuple[Letterbox, Executor]:
    """Run a stage until its thread has polled so often; the fourth poll brings a frame."""
    executor = Executor("compute", [stage], on_failure=lambda *_: None)
    stage.executor = executor
    letterbox = Letterbox(stage, brings_at={4}, polls=polls)
    executor.start(letterbox)
    executor.join(10)
    return letterbox, executor


@pytest.mark.parametrize("frames", [0, 1])
def test_a_thread_that_is_to_end_does_no_step_for_what_its_last_poll_brings(frames: int) -> None:
    stage = Counting(frames, sends=True)
    executor = Executor("compute", [stage], on_failure=lambda *_: None)
    stage.executor = executor
    executor.start(Letterbox(stage, brings_at={1}, polls=1))
    executor.join(10)
    assert (frames + 1, frames) == (stage.frames, stage.frame)


def test_a_thread_is_not_woken_by_its_own_steps() -> None:
    stage = Counting(frames=3)
    executor = Executor("compute", [stage], on_failure=lambda *_: None)
    stage.executor = executor
    with patch.object(executor, "_waiter", wraps=executor._waiter) as waiter:
        executor.start()
        while not executor.is_waiting:
            time.sleep(1e-3)
        waiter.set.assert_not_called()
        executor.stop()
        executor.join(10)
    assert (3, False) == (stage.frame, executor._thread.is_alive())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(0.0)
    for module in (executor_module, loop_module):
        monkeypatch.setattr(module, "time", made)
    return made


class Timely(Counting):
    """A stage that is ready each 20 ms, and takes 8 ms then."""

    def __init__(self, clock: Clock, frames: int, *, works: bool = True) -> None:
        super().__init__(frames)
        self.clock, self.works = clock, works

    def is_ready(self) -> bool:
        return self.clock.now_s >= 20e-3 * (self.frame + 1) - 1e-9

    def step(self) -> None:
        self.clock.spend(8e-3, working=self.works)
        self.frame += 1
        self.finished = self.frame == self.frames


def test_the_time_without_a_ready_stage_is_counted(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor("compute", [Timely(clock, 6)], on_failure=lambda *_: None)
    monkeypatch.setattr(executor._waiter, "wait", lambda *_: clock.spend(4e-3))
    executor._run()
    assert 20e-3 + 5 * 12e-3 == pytest.approx(executor.waited_s)
    assert 8e-3 == pytest.approx(executor.slowest_s)


@pytest.mark.parametrize("works", [False, True])
def test_work_of_another_thread_of_the_core_does_not_count_as_waiting(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    stage = Timely(clock, 5, works=works)
    computing = Executor("compute", [Counting(0)], on_failure=lambda *_: None)
    source = Executor("source", [stage], on_failure=lambda *_: None, beside=computing)

    def sleep(*_: object) -> None:
        """Let the other thread work while this one sleeps."""
        if stage.is_ready():
            source._run_step(stage)
        else:
            clock.spend(4e-3, working=False)
        if stage.finished:
            computing.stop()

    monkeypatch.setattr(computing._waiter, "wait", sleep)
    computing._run()
    assert 108e-3 - 5 * 8e-3 * works == pytest.approx(computing.waited_s)


def test_work_beside_a_thread_that_computes_leaves_its_waits_as_they_are(clock: Clock) -> None:
    stage = Timely(clock, 5)
    computing = Executor("compute", [Counting(1)], on_failure=lambda *_: None)
    source = Executor("source", [stage], on_failure=lambda *_: None, beside=computing)
    source._run_step(stage)
    assert 0 == computing.waited_s


class Departures(Mailbox):
    """A transport that notes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int | str] = []

    def send(self, lane: int, slot: int) -> None:
        self.sent.append(slot)

    def send_end(self, lane: int) -> None:
        self.sent.append("end")


def ring_of(steps: Steps, depth: int) -> Ring:
    return Ring(Tensor("t", "uint8", (SMALL,)), depth, (steps,))


ODD = Steps(1, (0, 2))


def test_only_the_frames_that_the_receiver_handles_are_sent() -> None:
    departures, ring = Departures(), ring_of(ODD, depth=3)
    outgoing = Outgoing(1, 1, ring, 0)
    for frame in range(6):
        assert ring.has_room()
        ring.put()
        assert outgoing.advance(departures, 0) == (frame in (1, 3, 5))
        if frame in (1, 3, 5):
            assert outgoing.is_under_way
            outgoing.complete(frame % 3, is_end=False)
        assert not outgoing.is_under_way
    assert [1, 0, 2] == departures.sent
    assert [7] == ring.read


def test_a_send_lasts_from_its_start_until_its_slot_can_be_reused(clock: Clock) -> None:
    departures, ring = Departures(), ring_of(EACH, depth=2)
    outgoing = Outgoing(1, 1, ring, 0)
    for _ in range(2):
        ring.put()
    clock.spend(70e-3)
    outgoing.advance(departures, 0)
    for slot in range(2):
        clock.spend(10e-3)
        outgoing.complete(slot, is_end=False)
    # The first took 10 ms, the second one 20 ms.
    assert 30e-3 == pytest.approx(outgoing.busy_s)


def test_slots_of_frames_that_are_not_sent_are_given_back_in_order_with_the_others() -> None:
    departures, ring = Departures(), ring_of(ODD, depth=4)
    outgoing = Outgoing(1, 1, ring, 0)
    for _ in range(4):
        ring.put()
    outgoing.advance(departures, 0)
    assert [1, 3] == departures.sent
    outgoing.complete(3, is_end=False)
    assert [1] == ring.read
    outgoing.complete(1, is_end=False)
    assert [5] == ring.read


@pytest.mark.parametrize(
    ("frames", "sent"), [(0, ["end"]), (1, ["end"]), (2, [1, "end"]), (3, [1, "end"])]
)
def test_the_end_is_sent_after_the_last_frame_that_the_receiver_handles(
    frames: int, sent: list[int | str]
) -> None:
    departures, ring = Departures(), ring_of(ODD, depth=4)
    outgoing = Outgoing(1, 1, ring, 0)
    for _ in range(frames):
        ring.put()
    outgoing.advance(departures, 0)
    assert "end" not in departures.sent
    ring.finish()
    assert outgoing.advance(departures, 0)
    assert sent == departures.sent
    assert not outgoing.advance(departures, 0)
    assert not outgoing.finished
    for slot in sent[:-1]:
        outgoing.complete(int(slot), is_end=False)
    outgoing.complete(0, is_end=True)
    assert outgoing.finished


def test_frames_are_received_one_after_another_whatever_their_numbers() -> None:
    ring = Ring(Tensor("t", "uint8", (SMALL,)), 2, (EACH,), turns=Turns(5, (1, 4)))
    incoming = Incoming(1, 1, ring)
    posted: list[int] = []

    class Posting(Mailbox):
        def receive(self, lane: int, slot: int) -> None:
            posted.append(slot)

    incoming.advance(Posting(), 0)
    incoming.complete(0, is_end=False, nbytes=SMALL)
    incoming.complete(1, is_end=False, nbytes=SMALL)
    assert (2, [0, 1]) == (ring.written, posted)
    ring.free(0)
    incoming.advance(Posting(), 0)
    incoming.complete(0, is_end=True)
    assert (2, [0, 1, 0], True) == (ring.end, posted, incoming.finished)


@pytest.mark.parametrize(("written", "slot", "frame"), [(0, 0, 0), (0, 1, 2), (1, 0, 3), (5, 1, 8)])
def test_a_message_that_is_wrong_is_told_by_the_number_of_its_frame_in_the_stream(
    written: int, slot: int, frame: int
) -> None:
    tensor = Tensor("t", "float32", (1, 4), symbols=("", "n"))
    ring = Ring(tensor, 2, (EACH,), turns=Turns(3, (0, 2)))
    ring.written = written
    with pytest.raises(JobError, match=rf"^message of rank 7, frame {frame}: "):
        Incoming(1, 7, ring).complete(slot, is_end=False, nbytes=3)


class Waiting:
    """A thread that has nothing to compute."""

    finished = False
    is_waiting = True
    step_s = 0.0


def test_the_main_thread_polls_once_and_when_it_is_woken_while_another_waits_for_messages() -> None:
    mailbox = Mailbox()
    loop = CommunicationLoop(mailbox, [], [], computing=Waiting())
    polls: list[int] = []

    def is_over() -> bool:
        polls.append(mailbox.polls)
        if len(polls) == 3:
            loop.wake()
        return len(polls) == 5

    loop.run(is_over)
    assert [1, 1, 1, 2, 2] == polls


@pytest.mark.parametrize(
    ("nbytes", "step_s", "wakes"),
    [(SMALL, 20e-3, False), (SMALL, 25e-3, True), (LARGE, 3e-3, True), (LARGE, 0.3e-3, False)],
)
def test_the_main_thread_is_woken_for_steps_that_are_worth_a_poll_in_their_midst(
    nbytes: int, step_s: float, wakes: bool
) -> None:
    computing = Waiting()
    loop = CommunicationLoop(Mailbox(), [], [Incoming(1, 1, ring(nbytes))], computing=computing)
    assert loop._choose_main_pause_s() > 0.1
    loop.begin_step(step_s)
    assert wakes == loop._waiter.wait(0)
    computing.is_waiting, computing.step_s = False, step_s
    loop._choose_main_pause_s()
    loop.begin_step(step_s)
    assert not loop._waiter.wait(0)


def test_the_main_thread_is_woken_when_a_large_message_leaves_while_it_sleeps_long() -> None:
    departures = ring(LARGE)
    outgoing = Outgoing(1, 1, departures, 0)
    computing = Waiting()
    computing.is_waiting, computing.step_s = False, 20e-3
    loop = CommunicationLoop(Mailbox(), [outgoing], [], computing=computing)
    assert 0.2 == loop._choose_main_pause_s()
    loop.begin_step(20e-3)
    assert not loop._waiter.wait(0)
    departures.put()
    loop.poll()
    loop.begin_step(20e-3)
    assert loop._waiter.wait(0)
    assert 20e-3 / 12 == loop._choose_main_pause_s()


class Turnstile(TwinTransport):
    """The twin, which fails when two threads call it at the same time."""

    def __init__(self, network: ThreadLinks, rank: int) -> None:
        super().__init__(network, rank)
        self.callers: set[str] = set()
        self._called = threading.Lock()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        assert self._called.acquire(blocking=False), "two threads at once"
        self.callers.add(threading.current_thread().name)
        time.sleep(20e-6)
        yield
        self._called.release()

    def send(self, lane: int, slot: int) -> None:
        with self._alone():
            super().send(lane, slot)

    def receive(self, lane: int, slot: int) -> None:
        with self._alone():
            super().receive(lane, slot)

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        with self._alone():
            return super().poll()


def test_one_thread_of_a_rank_at_a_time_calls_mpi(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    job = read_driver(folder / "driver.py")
    results = folder / "results.bin"
    options = RunOptions(results=results, frames=60, fps=500.0, bind=False, direct=False)
    network = ThreadLinks(len(job.ranks))
    ranks = [Turnstile(network, rank) for rank in range(len(job.ranks))]
    with ThreadPoolExecutor(len(ranks), "main") as pool:
        futures = [pool.submit(run_rank, job, folder, options, rank) for rank in ranks]
        records = [future.result(60) for future in futures]
    assert 60 == records[0][0].source.frames
    for rank in ranks:
        assert "compute" in rank.callers
        assert any(name.startswith("main") for name in rank.callers)


@pytest.mark.parametrize(
    ("cores", "fps", "others"),
    [((0,), None, {"source", "sink"}), ((0,), 1000.0, {"sink"}), ((0, 1), None, set())],
)
def test_a_rank_of_one_core_reads_and_writes_in_the_thread_that_computes(
    tmp_path: Path, cores: tuple[int, ...], fps: float | None, others: set[str]
) -> None:
    folder = build_folder(tmp_path, figure_2(), dict.fromkeys(FIGURE_2_RANKS, 0))
    job = read_driver(folder / "driver.py")
    job = replace(job, ranks=(replace(job.ranks[0], cores=cores),))
    options = RunOptions(results=folder / "results.bin", frames=5, fps=fps, bind=False)
    steps: list[bytes] = []
    on_step = lambda frame, name: steps.append(name)  # noqa: E731
    run_rank(job, folder, options, ThreadLinks(1).transport(0), on_step=on_step)
    assert others | {"segment 0"} == {step.decode().partition(",")[0] for step in steps}


FAILED = Failure(1, 2, "index 7 is out of bounds").to_bytes()


@pytest.mark.parametrize(
    ("nbytes", "mark", "has_failed"),
    [(SMALL, 0, False), (SMALL, 1, False), (SMALL + 512, 1, True), (SMALL + 512, 0, True)],
)
def test_the_length_of_a_message_tells_whether_its_frame_has_failed(
    nbytes: int, mark: int, has_failed: bool
) -> None:
    there = ring(SMALL)
    incoming = Incoming(1, 1, there)
    incoming.advance(Mailbox(), 0)
    there.messages[0][SMALL:] = np.frombuffer(FAILED, np.uint8)
    there.records[0][0] = mark  # as the sender wrote it
    incoming.complete(0, is_end=False, nbytes=nbytes)
    failure = Input(there, 0).failure()
    assert (Failure(1, 2, "index 7 is out of bounds") if has_failed else None) == failure


@pytest.mark.parametrize("nbytes", [1, SMALL - 1, SMALL + 1, SMALL + 511])
def test_a_message_of_another_length_ends_the_job(nbytes: int) -> None:
    incoming = Incoming(1, 3, ring(SMALL))
    incoming.advance(Mailbox(), 0)
    expected = f"message of rank 3, frame 0: tensor 't' came in {nbytes} bytes, expected {SMALL}"
    with pytest.raises(JobError, match=f"^{expected}$"):
        incoming.complete(0, is_end=False, nbytes=nbytes)
