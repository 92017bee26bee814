"""Deaths of processes, noticed in their order, with descriptors of processes and without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rankslice.backend.runtime.faults.watched_process import Deaths, Process, process_start

PATIENCE_S = 60


@contextmanager
def sleepers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(["sleep", "1000"])) for _ in range(count)]
        yield processes
        for process in processes:
            process.kill()


def watched(processes: list[subprocess.Popen[bytes]]) -> tuple[Deaths, list[Process]]:
    deaths = Deaths()
    watching = [Process(process.pid, process_start(process.pid)) for process in processes]
    for process in watching:
        deaths.watch(process)
    return deaths, watching


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process; it is dead then, but its number is not free."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_process_with_the_number_of_another_one_is_not_taken_for_it() -> None:
    started = process_start(os.getpid())
    assert Process(os.getpid(), started).is_alive
    for other in (started - 1000, started + 1000):
        assert not Process(os.getpid(), other).is_alive


def test_a_process_may_see_its_start_a_little_later_than_others_do() -> None:
    started = process_start(os.getpid())
    assert Process(os.getpid(), started + 5).is_alive


def test_a_process_that_has_ended_has_no_start() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert -1 == process_start(process.pid)
    assert -1 == process_start(process.pid)


@pytest.fixture(params=["with descriptors", "without"])
def maybe_without_descriptors(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.param == "without":
        monkeypatch.delattr(os, "pidfd_open")


def test_processes_that_ended_in_between_are_noticed_in_the_order_of_their_ends() -> None:
    with sleepers(4) as processes:
        deaths, watching = watched(processes)
        for number in (2, 0, 3):
            end(processes[number])
        assert deaths.wait(0)
        assert [watching[2], watching[0], watching[3]] == deaths.ended
        end(processes[1])
        assert deaths.wait(0)
        assert [watching[2], watching[0], watching[3], watching[1]] == deaths.ended
        assert not deaths.wait(0)


def test_a_death_ends_the_wait() -> None:
    with sleepers(2) as processes:
        deaths, watching = watched(processes)
        processes[1].kill()
        assert deaths.wait(10 * PATIENCE_S)
        assert [watching[1]] == deaths.ended


@pytest.mark.usefixtures("maybe_without_descriptors")
def test_a_process_that_had_ended_before_it_was_watched_is_noticed_once() -> None:
    with sleepers(2) as processes:
        gone = Process(processes[0].pid, process_start(processes[0].pid))
        end(processes[0])
        deaths, (alive,) = watched(processes[1:])
        assert not deaths.wait(0)
        deaths.watch(gone)
        deaths.watch(gone)
        assert deaths.wait(0)
        assert [gone] == deaths.ended
        assert not deaths.wait(0)
        assert alive.is_alive


@pytest.mark.usefixtures("maybe_without_descriptors")
def test_a_process_that_took_over_a_number_is_not_waited_for() -> None:
    with sleepers(1) as processes:
        earlier = Process(processes[0].pid, process_start(processes[0].pid) - 1000)
        deaths = Deaths()
        deaths.watch(earlier)
        assert deaths.wait(0)
        assert [earlier] == deaths.ended
        earlier.kill()
        assert processes[0].poll() is None


@pytest.mark.usefixtures("maybe_without_descriptors")
def test_a_process_is_killed_and_noticed() -> None:
    with sleepers(1) as processes:
        deaths, (process,) = watched(processes)
        assert not deaths.wait(0)
        process.kill()
        os.waitid(os.P_PID, process.number, os.WEXITED | os.WNOWAIT)
        assert deaths.wait(0)
        assert [process] == deaths.ended
