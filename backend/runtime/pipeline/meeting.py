"""What all ranks do together before frame 0: compare their options, and fail as one."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ..errors import ElsewhereError, JobError
from ..job import Job
from ..options import RunOptions
from ..transport.transport import Transport
from ..version import RUNTIME_VERSION

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the ranks of the job run."""

    hosts: tuple[str, ...]
    processes: tuple[int, ...]
    """Process numbers, each on its own board."""

    def is_far(self, rank: int) -> bool:
        """Return whether a rank is on another board."""
        return self.hosts[rank] != socket.gethostname()


def meet(job: Job, options: RunOptions, transport: Transport) -> Peers:
    """Compare what the ranks were started with, and return where they run. Collective.

    Raises:
        JobError: on rank 0: something differs.
        ElsewhereError: on the other ranks: the same.
    """
    mine: dict[str, Any] = {
        "plan": job.sha256,
        "runtime version": RUNTIME_VERSION,
        "window": options.window or job.window,
        "exact": options.exact,
        "byte order": sys.byteorder,
        "ranks": transport.size,
    }
    host = {"host": socket.gethostname(), "process": os.getpid()}
    records = share(transport, {**mine, **host})
    for rank, record in enumerate(records):
        for name in mine:
            value = records[0].get(name)
            if record.get(name) != value:
                kind = ElsewhereError if transport.rank else JobError
                raise kind(
                    f"rank {rank} was started with {name} {record.get(name)!r}, rank 0 with"
                    f" {value!r}: deploy and start all boards from the same build"
                )
    return Peers(
        hosts=tuple(record["host"] for record in records),
        processes=tuple(record["process"] for record in records),
    )


def share(transport: Transport, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Give a record to all ranks; return everybody's, by rank. Collective."""
    return [json.loads(text) for text in transport.exchange(json.dumps(record).encode())]


def together(transport: Transport, step: Callable[[], _T]) -> _T:
    """Do a step on all ranks and return its result here. Collective.

    Raises:
        JobError: the step failed here, and on no rank before this one.
        ElsewhereError: it failed on another rank, the first of which raises :class:`JobError`.
    """
    result, failure = None, None
    try:
        result = step()
    except JobError as error:
        failure = error
    messages = transport.exchange(str(failure or "").encode())
    first = next((rank for rank, message in enumerate(messages) if message), None)
    if first is None:
        return cast(_T, result)
    if first == transport.rank and failure is not None:
        raise failure
    raise ElsewhereError(messages[first].decode())
