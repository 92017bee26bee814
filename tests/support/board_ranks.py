"""Ranks that find each other on a board: threads of one process, or processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, TypeAlias, TypeVar

from rankslice.backend.runtime.direct.neighbours import (
    Discovery,
    address_of,
    find_neighbours,
    listen,
)

Share: TypeAlias = Callable[[Any], list[Any]]
_T = TypeVar("_T")

_PROGRAM = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from board_ranks import connect
from rankslice.backend.runtime.direct.neighbours import swap
from rankslice.backend.runtime.direct.memory import make_memory, map_memory

def share(value):
    print(json.dumps(value), flush=True)
    return json.loads(input())

"""

LIMIT_S = 20.0


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def connect(
    rank: int, share: Share, *, process: int | None = None, wants: bool = True
) -> Discovery:
    """Open a listener and find the neighbours.

    Args:
        rank: of the caller.
        share: gives a value to all ranks, returns everybody's.
        process: what the rank says its number is.
        wants: whether it wants neighbours.
    """
    with listen() as listener:
        own = [process or os.getpid(), address_of(listener) if wants else ""]
        processes, addresses = zip(*share(own), strict=True)
        return find_neighbours(rank, processes, listener, addresses, share)


def as_threads(count: int, step: Callable[[int, Share], _T]) -> list[_T]:
    """Let threads of this process be ranks; return the results of their steps."""
    values: list[Any] = [None] * count
    barrier = Barrier(count, timeout=LIMIT_S)

    def run(rank: int) -> _T:
        def share(value: Any) -> list[Any]:
            values[rank] = json.dumps(value)
            barrier.wait()
            shared = [json.loads(text) for text in values]
            barrier.wait()
            return shared

        return step(rank, share)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, rank) for rank in range(count)]
        return [future.result(LIMIT_S) for future in futures]


class OtherRanks:
    """Processes that are ranks 1 and up of a job, whose rank 0 is this process."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self.processes = processes

    def share(self, value: Any) -> list[Any]:
        """Give a value to all ranks; return everybody's."""
        values = [value]
        for process in self.processes:
            assert process.stdout is not None
            values.append(json.loads(process.stdout.readline()))
        for process in self.processes:
            assert process.stdin is not None
            print(json.dumps(values), file=process.stdin, flush=True)
        return values


@contextmanager
def other_ranks(*programs: str, before: Sequence[str] = ()) -> Iterator[OtherRanks]:
    """Start ranks 1 and up; kill what is left of them in the end.

    Args:
        programs: in Python, with ``connect``, ``share``, ``swap`` and those of memory.
        before: words of a command that starts them.
    """
    processes = [
        subprocess.Popen(
            [*before, sys.executable, "-c", _PROGRAM + program, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for program in programs
    ]
    try:
        yield OtherRanks(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
