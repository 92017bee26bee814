"""Results of frames that a thread gives while others are taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

F = TypeVar("F")
R = TypeVar("R")


def results_in_order(
    frames: Iterable[F],
    submit: Callable[[F], Future[R]],
    limit: int,
    take: Callable[[Future[R]], Any] = Future.result,
) -> Iterator[Any]:
    """Yield the result of each frame once it is there, whether or not another frame has come.

    A thread reads and submits the frames, at most ``limit`` before their results are taken.
    ``take`` returns what is yielded of a future that is done.

    Raises:
        BaseException: what reading or giving a frame has raised, after the results before it.
    """
    submitted: SimpleQueue[Future[R] | None] = SimpleQueue()
    room = threading.Semaphore(limit)
    is_over = threading.Event()

    def give() -> None:
        try:
            rest = iter(frames)
            while room.acquire() and not is_over.is_set():
                submitted.put(future := submit(next(rest)))
                if is_over.is_set():
                    future.cancel()
        except StopIteration:
            submitted.put(None)
        except BaseException as error:
            failed: Future[R] = Future()
            failed.set_exception(error)
            submitted.put(failed)

    threading.Thread(target=give, name="frames", daemon=True).start()
    try:
        while (future := submitted.get()) is not None:
            yield take(future)
            room.release()
    finally:
        is_over.set()
        room.release()
        while not submitted.empty():
            if (left := submitted.get()) is not None:
                left.cancel()
