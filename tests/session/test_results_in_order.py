"""Results that come when they are there, of frames that come when they like."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from rankslice.session.pipeline import results_in_order


def at_once(frame: int) -> Future[int]:
    future: Future[int] = Future()
    future.set_result(2 * frame)
    return future


def test_a_result_does_not_wait_for_the_next_frame() -> None:
    goes_on = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        assert goes_on.wait(20)
        yield 2

    results = results_in_order(slow(), at_once, 4)
    assert 2 == next(results)
    goes_on.set()
    assert [4] == list(results)


def test_results_before_an_exception_of_the_source_come_first() -> None:
    def broken() -> Iterator[int]:
        yield from range(3)
        raise ZeroDivisionError("the camera")

    results: list[int] = []
    with pytest.raises(ZeroDivisionError, match="the camera"):
        results.extend(results_in_order(broken(), at_once, 4))
    assert [0, 2, 4] == results


def test_a_frame_that_is_refused_does_not_hide_the_results_before_it() -> None:
    def submit(frame: int) -> Future[int]:
        if frame == 2:
            raise ValueError("frame 2")
        return at_once(frame)

    results = results_in_order(range(9), submit, 4)
    assert [0, 2] == [next(results), next(results)]
    with pytest.raises(ValueError, match="frame 2"):
        next(results)


def test_no_more_frames_are_read_than_may_wait() -> None:
    taken: list[int] = []

    def noted() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = results_in_order(noted(), at_once, 3)
    assert [0, 2] == [next(results), next(results)]
    time.sleep(0.05)
    assert len(taken) <= 4
    results.close()


def test_who_stops_withdraws_what_waits_and_the_source_is_read_no_further() -> None:
    futures: list[Future[int]] = []
    is_closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            is_closed.set()

    def submit(frame: int) -> Future[int]:
        futures.append(at_once(frame) if not futures else Future())
        return futures[-1]

    results = results_in_order(endless(), submit, 5)
    next(results)
    results.close()
    assert is_closed.wait(10)
    assert all(future.done() for future in futures)
    assert len(futures) <= 6
