"""What all ranks do together: compare options before frame 0, fail as one, sample clocks."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from ..direct.neighbours import Discovery, Neighbour, address_of, find_neighbours, listen
from ..errors import ElsewhereError, JobError, NeighbourDiedError
from ..job import Job
from ..options import RunOptions
from ..transport import Transport
from ..version import RUNTIME_VERSION
from .wiring import Pairs, pairs_within_boards

_T = TypeVar("_T")

PINGS = 50
"""Messages that a board sends to the rank of the source, one after the other."""
KEPT = 8
"""How many of them count: those that came back first."""

Sample = tuple[int, int, int]
"""The clock of this board in the middle of a round trip; what the other clock showed then; the
length of the round trip. Nanoseconds of CLOCK_MONOTONIC."""


@dataclass(frozen=True, slots=True)
class Peers:
    processes: tuple[int, ...]
    """Process numbers, each on its own board."""
    neighbours: Mapping[int, Neighbour] = field(default_factory=dict)
    direct: Pairs = frozenset()
    not_direct: str = ""


def connect_ranks(
    job: Job, options: RunOptions, transport: Transport, resources: ExitStack
) -> Peers:
    """Compare what the ranks were started with, and return where they run. Collective.

    ``resources`` gets what releases the connections to ranks of this board.

    Raises:
        JobError: on rank 0: something differs.
        ElsewhereError: on the other ranks: the same.
    """
    mine: dict[str, Any] = {
        "driver": job.sha256,
        "runtime version": RUNTIME_VERSION,
        "window": options.window or job.window,
        "exact": options.exact,
        "events": options.events is not None,
        "skip failed": options.skip_failed,
        "byte order": sys.byteorder,
        "ranks": transport.size,
    }
    listener = resources.enter_context(listen()) if options.direct else None
    address = address_of(listener) if listener is not None else ""
    records = allgather(transport, {**mine, "process": os.getpid(), "address": address})
    for rank, record in enumerate(records):
        for name in mine:
            value = records[0].get(name)
            if record.get(name) != value:
                kind = ElsewhereError if transport.rank else JobError
                raise kind(
                    f"rank {rank} was started with {name} {record.get(name)!r}, rank 0 with"
                    f" {value!r}: deploy and start all boards from the same build"
                )
    processes = tuple(record["process"] for record in records)
    discovery = find_neighbours(
        transport.rank,
        processes,
        listener,
        [record["address"] for record in records],
        partial(allgather, transport),
    )
    for neighbour in discovery.neighbours.values():
        resources.callback(neighbour.close)
    reason = _why_not_direct(job, discovery, wanted=options.direct)
    if reason and not transport.rank:
        print(f"ranks of one board exchange messages: {reason}", file=sys.stderr, flush=True)
    return Peers(processes, discovery.neighbours, discovery.pairs, reason)


def _why_not_direct(job: Job, discovery: Discovery, *, wanted: bool) -> str:
    missing = sorted(pairs_within_boards(job) - discovery.pairs)
    if not missing or not wanted:
        return "--no-direct" if missing else ""
    one, other = (job.ranks[rank].name for rank in missing[0])
    why = "belong to two accounts" if missing[0] in discovery.foreign else "cannot share memory"
    return f"{one} and {other} {why}"


def allgather(transport: Transport, record: _T) -> list[_T]:
    """Give a record, as JSON has it, to all ranks; return everybody's, by rank. Collective."""
    return [json.loads(text) for text in transport.exchange(json.dumps(record).encode())]


def run_on_all(transport: Transport, step: Callable[[], _T]) -> _T:
    """Do a step on all ranks and return its result here. Collective.

    Raises:
        JobError: the step failed here, and on no rank before this one.
        ElsewhereError: it failed on another rank, the first of which raises :class:`JobError`.
        NeighbourDiedError: it failed on no rank but because of the end of one.
    """
    result, message = None, ""
    failure: JobError | None = None
    try:
        result = step()
    except NeighbourDiedError as error:  # if it failed and lives, it says why
        failure = error
    except JobError as error:
        failure, message = error, str(error)
    messages = transport.exchange(message.encode())
    first = next((rank for rank, text in enumerate(messages) if text), None)
    if first is not None and first != transport.rank:
        raise ElsewhereError(messages[first].decode())
    if failure is not None:
        raise failure
    return cast(_T, result)


def sample_clocks(job: Job, transport: Transport) -> list[Sample]:
    """Compare the clock of each board with that of the board that has the source. Collective.

    The lowest rank of each other board exchanges messages with the rank of the source; one board
    after the other, some milliseconds each. Nothing is done if the job has one board.

    Returns:
        Of a rank that has exchanged messages for its board, its samples; of others, none.
    """
    source = job.source
    first_ranks: dict[str, int] = {}
    for spec in job.ranks:
        first_ranks.setdefault(spec.board, spec.rank)
    del first_ranks[job.ranks[source].board]
    if transport.rank == source:
        for peer in first_ranks.values():
            for _ in range(PINGS):
                transport.receive_number(peer)
                transport.send_number(peer, time.monotonic_ns())
    elif transport.rank in first_ranks.values():
        return _ask(transport, source)
    return []


def _ask(transport: Transport, peer: int) -> list[Sample]:
    samples = []
    for number in range(PINGS):
        begin = time.monotonic_ns()
        transport.send_number(peer, number)
        other = transport.receive_number(peer)
        end = time.monotonic_ns()
        samples.append(((begin + end) // 2, other, end - begin))
    return sorted(samples, key=lambda sample: sample[2])[:KEPT]
