"""Where a thread sleeps: what ends a sleep, and what does not."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import threading
from collections.abc import Iterator

import pytest
from board_ranks import open_descriptors

from rankslice.backend.runtime.pipeline.waiting import Waiter


@pytest.fixture
def waiter() -> Waiter:
    return Waiter()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_a_sleep_ends_with_its_time(waiter: Waiter) -> None:
    assert not waiter.wait(0.001)


def test_a_thread_that_was_woken_before_does_not_sleep_once(waiter: Waiter) -> None:
    waiter.set()
    assert waiter.wait()
    assert not waiter.wait(0.001)


def test_another_thread_ends_a_sleep(waiter: Waiter) -> None:
    threading.Timer(0.01, waiter.set).start()
    assert waiter.wait(60)


def test_a_descriptor_ends_a_sleep_and_is_handled(waiter: Waiter, pipe: tuple[int, int]) -> None:
    seen: list[bytes] = []
    waiter.watch(pipe[0], lambda: seen.append(os.read(pipe[0], 10)))
    os.write(pipe[1], b"token")
    assert waiter.wait(60)
    assert [b"token"] == seen


def test_a_descriptor_that_is_watched_for_one_sleep_is_forgotten(
    waiter: Waiter, pipe: tuple[int, int]
) -> None:
    os.write(pipe[1], b"token")
    assert waiter.wait(60, [(pipe[0], lambda: None)])
    assert not waiter.wait(0.001)


def test_a_descriptor_that_is_no_longer_watched_wakes_nobody(
    waiter: Waiter, pipe: tuple[int, int]
) -> None:
    waiter.watch(pipe[0], lambda: None)
    waiter.forget(pipe[0])
    os.write(pipe[1], b"token")
    assert not waiter.wait(0.001)


def test_descriptors_may_have_numbers_that_select_does_not_take(
    waiter: Waiter, pipe: tuple[int, int]
) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 1100:
        pytest.skip("the limit of open files (ulimit -n) is below 1100")
    high = fcntl.fcntl(pipe[0], fcntl.F_DUPFD_CLOEXEC, 1050)
    try:
        waiter.watch(high, lambda: os.read(high, 10))
        assert not waiter.wait(0.001)
        os.write(pipe[1], b"token")
        assert waiter.wait(60)
    finally:
        os.close(high)


def test_what_is_raised_while_a_descriptor_is_handled_ends_the_next_sleep(
    waiter: Waiter, pipe: tuple[int, int]
) -> None:
    waiter.watch(pipe[0], lambda: (os.read(pipe[0], 10), waiter.set()))
    os.write(pipe[1], b"token")
    assert waiter.wait(60)
    assert waiter.wait()


def test_a_descriptor_is_released_with_the_last_thread_that_knows_the_waiter() -> None:
    gc.collect()
    before = open_descriptors()
    waiter = Waiter()
    assert before + 1 == open_descriptors()
    del waiter
    assert before == open_descriptors()
