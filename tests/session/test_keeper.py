"""The keeper and what it talks to, with threads for jobs."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from descriptors import none_left
from waiting import until

from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.frame_records import Failure, RecordForm
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.keeper_sink import KeeperSink
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, Source, keeper_source, open_source
from rankslice.framework.errors import RankSliceError
from rankslice.session.keeper import frame_keeper as keeper_module
from rankslice.session.keeper.frame_keeper import (
    FailedFrameError,
    HasFailed,
    Keeper,
    Outputs,
    PipelineError,
    QueueFullError,
    RunJob,
)
from rankslice.session.keeper.job_connections import JobListener

X = Tensor("x", "float32", (2, 3))
Y = Tensor("y", "float32", (2, 3))
ROWS = Tensor("rows", "int64", (4, 2), ("n", ""))
KEPT = RunOptions(inputs=("keeper",))


class Double:
    """A job in a thread: its results are twice its frames. It can be made to fail."""

    def __init__(self, spec: Tensor = X) -> None:
        self.spec = spec
        self.fails_at: Callable[[int, int], bool] = lambda epoch, frame: False
        self.refuses: Callable[[float], bool] = lambda value: False
        self.go_on = threading.Event()
        self.go_on.set()
        self.lock = threading.Lock()

    def __call__(self, keeper: wire.Keeper, has_failed: HasFailed) -> None:
        with self.lock:  # the environment belongs to all threads
            os.environ[wire.VARIABLE] = keeper.to_text()
            sink = KeeperSink([self.spec])
            source = open_source(KEPT, [self.spec])
            slot = make_slot(self.spec)
            frame = 0
            try:
                while True:
                    source.read(frame, [slot])
                    if self.fails_at(keeper.epoch, frame):
                        raise RankSliceError(f"rank 1: failed at {frame}")
                    assert self.go_on.wait(30)
                    if any(map(self.refuses, values_in(slot).flat[:1])):
                        sink.fail(frame, Failure(1, 0, "no\33[2J"))
                    else:
                        sink.write(frame, [2 * values_in(slot)])
                    frame += 1
            except EndOfStreamError:
                sink.finish()
            except JobError as error:
                raise RankSliceError(str(error)) from None
            finally:
                source.close()
                sink.close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(wire.VARIABLE, "")


def opened(job: RunJob, *, spec: Tensor = X, limit: int = 4, restarts: int = 0) -> Keeper:
    def follow(epoch: int, error: RankSliceError) -> int | None:
        return keeper.start_job(job) if keeper.restarts < restarts else None

    keeper = Keeper([spec], [spec], ahead=2, limit=limit, follow=follow if restarts else None)
    keeper.start_job(job)
    return keeper


def frame(number: int) -> list[np.ndarray]:
    return [np.full(X.shape, number, np.float32)]


def value(future: Future[Outputs]) -> float:
    return float(future.result(30)["x"][0, 0])


def test_results_are_those_of_their_frames() -> None:
    keeper = opened(Double())
    keeper.wait_until_ready()
    futures = [keeper.submit(frame(number)) for number in range(50)]
    assert [2.0 * number for number in range(50)] == [value(future) for future in futures]
    keeper.close()
    assert 50 == keeper.completed
    assert 0 == keeper.kept


def test_a_frame_that_fails_is_told_to_who_gave_it_and_no_job_takes_over() -> None:
    job = Double()
    job.refuses = lambda value: value % 10 == 0
    keeper = opened(job, restarts=3)
    keeper.wait_until_ready()
    futures = [keeper.submit(frame(number)) for number in range(50)]
    for number, future in enumerate(futures):
        if number % 10:
            assert 2.0 * number == value(future)
            continue
        with pytest.raises(FailedFrameError) as caught:
            future.result(30)
        assert f"rank 1: segment 0, frame {number}: no\\x1b[2J" == str(caught.value)
        assert (number, 1, 0) == (caught.value.frame, caught.value.rank, caught.value.segment)
        assert "no\\x1b[2J" == caught.value.reason
    keeper.close()
    assert (50, 0, None) == (keeper.completed, keeper.restarts, keeper.error)


def test_frames_are_received_into_the_memory_of_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = socket.socketpair()
    received: list[tuple[int, int]] = []

    class Watched:
        """A connection that notes where in memory what comes is put."""

        close = staticmethod(ours.close)

        def recv_into(self, buffer: memoryview) -> int:
            count = ours.recv_into(buffer)
            place = np.frombuffer(buffer, np.uint8).ctypes.data
            received.append((place, place + count))
            return count

    monkeypatch.setattr(keeper_source, "connect", lambda role: Watched())
    specs = [Tensor("x", "float32", (100, 100)), ROWS]
    source, slots = open_source(KEPT, specs), [make_slot(spec) for spec in specs]
    sent = [np.random.default_rng(0).random((100, 100), np.float32), np.arange(6).reshape(3, 2)]
    form = RecordForm(specs)
    wire.send(theirs, form.head_of(0, 0.0, sent), sent)
    source.read(0, slots)
    source.close()
    theirs.close()
    places = []
    for values, slot in zip(sent, slots, strict=True):
        there = values_in(slot)
        np.testing.assert_array_equal(values, there)
        places.append(range(there.ctypes.data, there.ctypes.data + there.nbytes + 1))
    inside = [
        end - begin for begin, end in received if any(begin in p and end in p for p in places)
    ]
    assert sum(values.nbytes for values in sent) == sum(inside)


def test_frames_of_open_sizes_keep_their_shapes() -> None:
    keeper = opened(Double(ROWS), spec=ROWS)
    for rows in (3, 0, 4):
        values = np.arange(2 * rows).reshape(rows, 2)
        assert (2 * values == keeper.submit([values]).result(30)["rows"]).all()
    keeper.close()


def test_who_gives_more_than_is_kept_waits_or_is_told() -> None:
    job = Double()
    job.go_on.clear()
    keeper = opened(job)
    futures = [keeper.submit(frame(number)) for number in range(4)]
    with pytest.raises(QueueFullError, match="4 frames have no result yet"):
        keeper.submit(frame(4), timeout=0)
    threading.Timer(0.05, job.go_on.set).start()
    futures.append(keeper.submit(frame(4)))
    assert [0, 2, 4, 6, 8] == [value(future) for future in futures]
    keeper.close()


def test_a_frame_that_is_withdrawn_makes_room_and_is_not_computed() -> None:
    job, computed = Double(), []
    job.fails_at = lambda epoch, number: computed.append(number) or False  # type: ignore[func-returns-value]
    job.go_on.clear()
    keeper = opened(job)
    keeper.wait_until_ready()
    futures = [keeper.submit(frame(number)) for number in range(4)]
    assert futures[3].cancel()
    assert 3 == keeper.kept
    futures.append(keeper.submit(frame(9), timeout=0))
    assert not futures[0].cancel()
    job.go_on.set()
    assert [0, 2, 4, 18] == [value(future) for future in futures if not future.cancelled()]
    keeper.close()
    assert 4 == len(computed)


def test_a_job_that_fails_is_told_to_all_who_wait_and_to_those_who_come_later() -> None:
    job = Double()
    job.fails_at = lambda epoch, number: number == 1
    job.go_on.clear()
    keeper = opened(job)
    futures = [keeper.submit(frame(number)) for number in range(3)]
    job.go_on.set()
    assert 0.0 == value(futures[0])
    for future in futures[1:]:
        with pytest.raises(PipelineError, match="rank 1: failed at 1"):
            future.result(30)
    with pytest.raises(PipelineError, match="rank 1: failed at 1"):
        keeper.submit(frame(9))
    keeper.close()


def test_a_job_that_does_not_start_is_told() -> None:
    def job(keeper: wire.Keeper, has_failed: HasFailed) -> None:
        raise RankSliceError("rank 0: no such engine")

    keeper = opened(job)
    with pytest.raises(PipelineError, match="rank 0: no such engine"):
        keeper.wait_until_ready()
    keeper.close()


def test_a_job_that_ends_too_early_is_told() -> None:
    keeper = opened(lambda keeper, has_failed: None)
    with pytest.raises(PipelineError, match="the job ended unexpectedly"):
        keeper.wait_until_ready()
    keeper.close()


@pytest.mark.parametrize("kills", [200, pytest.param(1000, marks=pytest.mark.ci)])
def test_frames_come_once_and_in_order_whenever_jobs_fail(kills: int) -> None:
    random_ = random.Random(kills)
    job = Double()
    life = {epoch: random_.randrange(8) for epoch in range(kills)}
    job.fails_at = lambda epoch, number: number == life.get(epoch)
    keeper = opened(job, restarts=kills)
    results: list[float] = []
    count = 3 * kills
    for number in range(count):
        keeper.submit(frame(number)).add_done_callback(lambda future: results.append(value(future)))
    keeper.close()
    assert [2.0 * number for number in range(count)] == results
    assert keeper.restarts > kills // 2
    assert [epoch for _, epoch in keeper.made] == sorted({epoch for _, epoch in keeper.made})
    assert keeper.error is None


def test_a_callback_may_give_the_next_frame() -> None:
    keeper = opened(Double(), limit=1)
    done = threading.Event()
    seen: list[float] = []

    def go_on(future: Future[Outputs]) -> None:
        seen.append(value(future))
        if len(seen) == 5:
            done.set()
        else:
            keeper.submit(frame(len(seen))).add_done_callback(go_on)

    keeper.submit(frame(0)).add_done_callback(go_on)
    assert done.wait(30)
    keeper.close()
    assert [0, 2, 4, 6, 8] == seen


def test_a_callback_that_ends_its_thread_fails_the_job_and_is_told() -> None:
    job = Double()
    job.go_on.clear()
    keeper = opened(job)
    futures = [keeper.submit(frame(number)) for number in range(4)]
    futures[1].add_done_callback(lambda future: sys.exit(3))
    job.go_on.set()
    assert [0.0, 2.0] == [value(future) for future in futures[:2]]
    for future in futures[2:]:
        with pytest.raises(PipelineError, match="a callback of a result raised SystemExit: 3"):
            value(future)
    keeper.close()
    assert "SystemExit" in str(keeper.error)


def test_who_gives_up_does_not_wait_for_the_search_of_a_successor() -> None:
    is_sought, may_end = threading.Event(), threading.Event()

    def follow(epoch: int, error: RankSliceError) -> int | None:
        is_sought.set()
        assert may_end.wait(30)
        return keeper.start_job(job)

    job = Double()
    job.fails_at = lambda epoch, number: epoch == 0
    keeper = Keeper([X], [X], ahead=2, limit=4, follow=follow)
    keeper.start_job(job)
    waiting = keeper.submit(frame(0))
    assert is_sought.wait(10)
    keeper.give_up()
    with pytest.raises(PipelineError, match="the pipeline was ended"):
        value(waiting)
    keeper.close()
    may_end.set()  # a job that comes too late gets no frames, and ends
    until(lambda: not any("job" in thread.name for thread in threading.enumerate()))
    assert "the pipeline was ended" == str(keeper.error)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "_LAST_WORDS_S", 0.2)


class Broken:
    """A job that goes on when its connections have ended, until its frames are given up."""

    def __init__(self, breaks: Callable[[Source, KeeperSink], None]) -> None:
        self.breaks, self.may_end = breaks, threading.Event()

    def __call__(self, keeper: wire.Keeper, has_failed: HasFailed) -> None:
        os.environ[wire.VARIABLE] = keeper.to_text()
        sink, source = KeeperSink([X]), open_source(KEPT, [X])
        source.read(0, [make_slot(X)])
        with suppress(JobError):
            self.breaks(source, sink)
        assert self.may_end.wait(30)
        source.close()
        sink.close()


def write_another(source: Source, sink: KeeperSink) -> None:
    sink.write(7, frame(1))


def write_too_many(source: Source, sink: KeeperSink) -> None:
    for number in range(9):
        sink.write(number, frame(1))


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (lambda source, sink: sink.close(), "connection of the sink ended early: it was closed"),
        (lambda source, sink: source.close(), "connection of the source ended early: "),
        (write_another, "the sink: result 7 came where 0 was due"),
        (write_too_many, "the sink: a result came, and no frame is inside"),
    ],
    ids=["no-sink", "no-source", "wrong-number", "too-many"],
)
def test_a_connection_that_breaks_fails_the_job_with_the_cause(
    breaks: Callable[[Source, KeeperSink], None], message: str, impatient: None
) -> None:
    job = Broken(breaks)
    keeper = opened(job, limit=100)
    future = keeper.submit(frame(0))
    until(lambda: keeper.state.has_ended)
    with pytest.raises(PipelineError, match=message):
        keeper.submit(frame(1))
    assert future.done()
    job.may_end.set()
    keeper.close()
    assert message in str(keeper.error)


def test_a_job_that_fails_says_why_its_connections_ended() -> None:
    def job(keeper: wire.Keeper, has_failed: HasFailed) -> None:
        os.environ[wire.VARIABLE] = keeper.to_text()
        KeeperSink([X]).close()
        time.sleep(0.1)
        raise RankSliceError("rank 1: killed")

    keeper = opened(job)
    with pytest.raises(PipelineError, match="rank 1: killed"):
        value(keeper.submit(frame(0)))
    keeper.close()


@pytest.fixture
def ready() -> Iterator[Keeper]:
    """A keeper whose job takes frames."""
    keeper = opened(Double())
    keeper.wait_until_ready()
    yield keeper
    keeper.close()


def keeper_of_job() -> wire.Keeper:
    return wire.keeper_from(os.environ)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_child_is_told_that_the_pipeline_is_its_parents_who_notices_nothing(
    in_thread: bool,
) -> None:
    job = Double()
    job.go_on.clear()
    keeper = opened(job)
    keeper.wait_until_ready()
    waiting = [keeper.submit(frame(number)) for number in range(3)]
    called: list[object] = []
    waiting[0].add_done_callback(called.append)
    printed: list[str] = []

    def ask_child() -> None:
        printed.append(in_child(lambda: tried(keeper, waiting, called)))

    if in_thread:
        thread = threading.Thread(target=ask_child)
        thread.start()
        thread.join()
    else:
        ask_child()
    expected = "the pipeline belongs to the parent process, which forked this one"
    lines = [line[: len(expected)] for line in printed[0].splitlines()]
    assert [*[expected] * 4, "no callback"] == lines
    job.go_on.set()
    assert [0.0, 2.0, 4.0] == [value(future) for future in waiting]
    assert 10.0 == value(keeper.submit(frame(5)))
    keeper.close()
    assert keeper.error is None


def in_child(work: Callable[[], str]) -> str:
    """Return what a forked process says, which ends within ten seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(10)
        try:
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        printed = pipe.read()
    os.waitpid(child, 0)
    return printed


def tried(keeper: Keeper, waiting: list[Future[Outputs]], called: list[object]) -> str:
    """Return what each use of another process's keeper raises."""
    lines = []
    for use in (
        lambda: keeper.submit(frame(9)),
        keeper.wait_until_ready,
        waiting[0].result,
        lambda: next(as_completed(waiting[1:])).result(),
    ):
        try:
            use()  # type: ignore[operator]
            lines.append("nothing")
        except PipelineError as error:
            lines.append(str(error))
    keeper.close()
    gc.collect()
    return "\n".join([*lines, "a callback" if called else "no callback"])


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"rankslice keeper 1\n" + bytes(100)],
    ids=["nothing", "http", "random", "no-secret"],
)
def test_strangers_are_refused_and_harm_nobody(ready: Keeper, said: bytes) -> None:
    for address in (keeper_of_job().source, keeper_of_job().sink):
        with socket.create_connection(address, 10) as connection:
            connection.settimeout(10)
            heard = b""
            with suppress(OSError):
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                while more := connection.recv(1024):
                    heard += more
            assert len(heard) <= 48
    assert 2.0 == value(ready.submit(frame(1)))


def test_a_rank_with_another_secret_is_refused(
    ready: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = keeper_of_job()
    other = wire.Keeper(there.source, there.sink, "00" * 32)
    monkeypatch.setenv(wire.VARIABLE, other.to_text())
    with pytest.raises(JobError, match="does not know the secret of this job"):
        wire.connect(wire.ROLE_SOURCE)
    assert 2.0 == value(ready.submit(frame(1)))


@pytest.mark.parametrize("role", [wire.ROLE_SOURCE, wire.ROLE_SINK])
def test_a_rank_of_one_job_is_not_let_in_as_one_of_another(
    ready: Keeper, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    own = keeper_of_job()
    for epoch in (own.epoch + 1, 2**32 - 1):
        monkeypatch.setenv(wire.VARIABLE, replace(own, epoch=epoch).to_text())
        with pytest.raises(JobError, match="does not know the secret of this job"):
            wire.connect(role)
    assert 2.0 == value(ready.submit(frame(1)))


def test_many_who_connect_and_say_nothing_keep_nobody_out(ready: Keeper) -> None:
    idle = [socket.create_connection(keeper_of_job().sink, 10) for _ in range(100)]
    assert 2.0 == value(ready.submit(frame(1)))
    # The oldest were sent away at once, so who knows the secret is heard.
    began = time.monotonic()
    wire.connect(wire.ROLE_SOURCE).close()
    assert time.monotonic() - began < wire.HANDSHAKE_TIMEOUT_S / 2
    time.sleep(0.2)
    threads = [thread for thread in threading.enumerate() if thread.name == "keeper: connection"]
    assert len(threads) <= 2 + 64
    for connection in idle:
        connection.close()


def test_a_door_that_finds_no_descriptor_lets_in_who_comes_later(ready: Keeper) -> None:
    with socket.socket() as early, none_left():
        early.connect(keeper_of_job().sink)
        time.sleep(0.2)
    wire.connect(wire.ROLE_SOURCE).close()
    assert 2.0 == value(ready.submit(frame(1)))


def test_a_source_whose_keeper_is_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = JobListener(lambda connection, role, epoch: None)
    monkeypatch.setenv(wire.VARIABLE, listener.keeper(("127.0.0.1", "127.0.0.1")).to_text())
    source = open_source(KEPT, [X])
    with pytest.raises(JobError, match="the program that has the frames has ended"):
        source.read(0, [make_slot(X)])
    source.close()
    listener.close()


def test_a_second_source_gets_no_frames(ready: Keeper) -> None:
    second = wire.connect(wire.ROLE_SOURCE)
    assert not wire.receive(second, bytearray(1))
    second.close()
    assert 2.0 == value(ready.submit(frame(1)))


def test_without_a_keeper_a_job_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wire.VARIABLE)
    with pytest.raises(JobError, match=r"open the build folder with rankslice\.open"):
        wire.connect(wire.ROLE_SOURCE)


def test_a_keeper_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    monkeypatch.setenv(wire.VARIABLE, wire.Keeper(address, address, "00" * 32).to_text())
    with pytest.raises(JobError, match=f"keeper at 127.0.0.1 port {address[1]} cannot be reached"):
        wire.connect(wire.ROLE_SINK)


def test_the_options_of_a_kept_run_name_no_results_file(tmp_path: Path) -> None:
    assert ["--input=keeper"] == [
        argument for argument in KEPT.to_arguments() if not argument.startswith("--results")
    ]
