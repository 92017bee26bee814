"""When the communication loop looks at MPI, and what its rank's threads do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import FIGURE_2_RANKS, build_folder, figure_2

from rankslice.backend.runtime.executor import Executor
from rankslice.backend.runtime.job import TensorSpec, load_job
from rankslice.backend.runtime.loop import Backoff, CommunicationLoop, Incoming, Outgoing
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.rank import run_rank
from rankslice.backend.runtime.slots import Ring
from rankslice.backend.runtime.transport import Completion, Lane
from rankslice.backend.runtime.twin import Network

SMALL, LARGE = 64, 1 << 20


def ring(nbytes: int, depth: int = 2) -> Ring:
    return Ring(TensorSpec("t", "uint8", (nbytes,)), depth, 1)


class Mailbox:
    """A transport whose finished receives the test names."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.finished: list[Completion] = []

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        pass

    def send(self, lane: int, slot: int) -> None:
        pass

    def send_end(self, lane: int) -> None:
        pass

    def receive(self, lane: int, slot: int) -> None:
        pass

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        received, self.finished = self.finished, []
        return [], received

    def exchange(self, record: bytes) -> list[bytes]:
        return [record]

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def test_a_frame_is_awaited_until_there_is_one_beside_that_in_work() -> None:
    arrivals = ring(LARGE, depth=3)
    incoming = Incoming(1, 1, arrivals)
    seen = [incoming.is_urgent]
    for _ in range(2):
        arrivals.put()
        seen.append(incoming.is_urgent)
    arrivals.free(0)
    seen.append(incoming.is_urgent)
    assert [True, True, False, True] == seen


def test_no_frame_is_awaited_after_the_last() -> None:
    arrivals = ring(LARGE)
    arrivals.finish()
    assert not Incoming(1, 1, arrivals).is_urgent


@pytest.mark.parametrize(("nbytes", "is_urgent"), [(SMALL, False), (LARGE, True)])
def test_only_large_messages_need_their_sender_on_the_way(nbytes: int, is_urgent: bool) -> None:
    departures = ring(nbytes)
    outgoing = Outgoing(1, 1, departures, 0)
    departures.put()
    outgoing.advance(Mailbox(), 0)
    assert is_urgent == outgoing.is_urgent
    outgoing.complete(0, is_end=False)
    assert not outgoing.is_urgent


@pytest.mark.parametrize(
    ("latency", "is_urgent", "uses_network", "pause_s"),
    [
        (False, False, False, 20e-3),
        (False, True, False, 4e-3),
        (False, True, True, 500e-6),
        (True, False, False, 500e-6),
    ],
)
def test_a_rank_that_computes_looks_as_often_as_somebody_waits_for_it(
    latency: bool, is_urgent: bool, uses_network: bool, pause_s: float
) -> None:
    backoff = Backoff(latency)
    found = backoff.computing_s(8e-3, is_urgent=is_urgent, uses_network=uses_network)
    assert pause_s == found


def waits(backoff: Backoff, clock: list[float], seconds: float, **how: bool) -> list[float]:
    """Let a rank wait for some time, then compute; return its sleeps in seconds."""
    backoff.reset()
    end, pauses = clock[0] + seconds, []
    while clock[0] < end:
        pauses.append(backoff.waiting_s(**{"is_sending": False, "uses_network": False, **how}))
        clock[0] += pauses[-1]
    backoff.computing_s(1e-3, is_urgent=False, uses_network=False)
    return pauses


def test_a_rank_that_waits_sleeps_for_a_small_share_of_the_time() -> None:
    clock = [0.0]
    pauses = waits(Backoff(False, lambda: clock[0]), clock, 10e-3)
    assert 20e-6 == pauses[0]
    assert sorted(pauses) == pauses
    assert pauses[-1] <= 10e-3 / 32


def test_a_rank_that_waits_as_long_as_before_looks_seldom_until_then() -> None:
    clock = [0.0]
    backoff = Backoff(False, lambda: clock[0])
    first = waits(backoff, clock, 10e-3)
    second = waits(backoff, clock, 10e-3)
    assert pytest.approx(2.5e-3, rel=0.1) == second[0]
    assert len(second) < len(first) / 4
    assert min(second[-2:]) <= 10e-3 / 32


def test_the_shortest_of_the_last_waits_counts() -> None:
    clock = [0.0]
    backoff = Backoff(False, lambda: clock[0])
    for seconds in (1e-3, 10e-3):
        waits(backoff, clock, seconds)
    assert pytest.approx(0.25e-3, rel=0.1) == waits(backoff, clock, 10e-3)[0]
    for _ in range(8):
        waits(backoff, clock, 10e-3)
    assert pytest.approx(2.5e-3, rel=0.1) == waits(backoff, clock, 10e-3)[0]


@pytest.mark.parametrize(
    ("is_sending", "uses_network", "pause_s"), [(True, True, 20e-6), (False, True, 500e-6)]
)
def test_a_message_under_way_is_not_left_alone(
    is_sending: bool, uses_network: bool, pause_s: float
) -> None:
    clock = [0.0]
    backoff = Backoff(False, lambda: clock[0])
    waits(backoff, clock, 10e-3)
    pauses = waits(backoff, clock, 10e-3, is_sending=is_sending, uses_network=uses_network)
    assert pause_s == pauses[0]


@pytest.mark.parametrize(("channel", "moves"), [(1, True), (0, True), (-1, False)])
def test_frames_and_credits_make_the_loop_look_more_often_but_heartbeats_do_not(
    channel: int, moves: bool
) -> None:
    mailbox = Mailbox()
    arrivals = ring(SMALL)
    loop = CommunicationLoop(mailbox, [], [Incoming(channel, 1, arrivals)])
    loop._advance()  # posts the receives
    mailbox.finished = [Completion(0, 0)]
    assert moves == loop._advance()
    assert 1 == arrivals.written


class Counting:
    """A stage that does some frames, and wakes its own thread after each."""

    finished = False

    def __init__(self, frames: int) -> None:
        self.frame = 0
        self.frames = frames
        self.executor: Executor | None = None

    def is_ready(self) -> bool:
        return self.frame < self.frames

    def step(self) -> None:
        self.frame += 1
        assert self.executor is not None
        self.executor.wake()

    def pause_s(self) -> float | None:
        return None

    def describe(self) -> str:
        return "counting"


def test_a_thread_is_not_woken_by_its_own_steps() -> None:
    idle: list[int] = []
    stage = Counting(frames=3)

    def on_idle() -> None:
        idle.append(stage.frame)
        executor.stop()

    executor = Executor("compute", [stage], on_failure=lambda *_: None, on_idle=on_idle)
    stage.executor = executor
    executor.start()
    executor.join(10)
    assert [3] == idle
    assert "counting, frame 3" == executor.at
    assert executor.step_s is None


@pytest.mark.parametrize(
    ("cores", "fps", "others"),
    [((0,), None, {"source", "sink"}), ((0,), 1000.0, {"sink"}), ((0, 1), None, set())],
)
def test_a_rank_of_one_core_reads_and_writes_in_the_thread_that_computes(
    tmp_path: Path, cores: tuple[int, ...], fps: float | None, others: set[str]
) -> None:
    folder = build_folder(tmp_path, figure_2(), dict.fromkeys(FIGURE_2_RANKS, 0))
    job = load_job(folder / "plan.json")
    job = replace(job, ranks=(replace(job.ranks[0], cores=cores),))
    options = RunOptions(results=folder / "results.bin", frames=5, fps=fps, bind=False)
    steps: list[str] = []
    run_rank(job, folder, options, Network(1).transport(0), on_step=steps.append)
    assert others | {"segment 0"} == {step.partition(",")[0] for step in steps}
