"""Several boards at a time: each is asked by a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rankslice.framework.errors import RankSliceError

A = TypeVar("A")
B = TypeVar("B")

_MAX_AT_ONCE = 32


def outcomes(do: Callable[[A], B], items: Sequence[A]) -> list[B | RankSliceError]:
    """Return for each item what a function returns, or the error that it raises."""

    def outcome(item: A) -> B | RankSliceError:
        try:
            return do(item)
        except RankSliceError as error:
            return error

    pool = ThreadPoolExecutor(_MAX_AT_ONCE)
    try:
        results = list(pool.map(outcome, items))
    except BaseException:
        # On Ctrl-C the caller closes its connections; it does not wait for answers.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def on_all(do: Callable[[A], B], items: Sequence[A]) -> tuple[B, ...]:
    """Return for each item what a function returns.

    Raises:
        RankSliceError: it failed for some items; with the errors of all of them, equal ones once.
    """
    results = outcomes(do, items)
    errors = [result for result in results if isinstance(result, RankSliceError)]
    if errors:
        mistakes = (mistake for error in errors for mistake in error.mistakes)
        raise RankSliceError(*dict.fromkeys(mistakes))
    return tuple(result for result in results if not isinstance(result, RankSliceError))
