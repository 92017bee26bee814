"""What the clocks of boards show, asked by messages: the launcher aligns them later."""

from __future__ import annotations

import time

from ..job import Job
from ..transport.transport import Transport

PINGS = 50
"""Messages that a board sends to the rank of the source, one after the other."""
KEPT = 8
"""How many of them count: those that came back first."""

Sample = tuple[int, int, int]
"""The clock of this board in the middle of a round trip; what the other clock showed then; the
length of the round trip. Nanoseconds of CLOCK_MONOTONIC."""


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
            _answer(transport, peer)
    elif transport.rank in first_ranks.values():
        return _ask(transport, source)
    return []


def _answer(transport: Transport, peer: int) -> None:
    for _ in range(PINGS):
        transport.hear(peer)
        transport.tell(peer, time.monotonic_ns())


def _ask(transport: Transport, peer: int) -> list[Sample]:
    samples = []
    for number in range(PINGS):
        begin = time.monotonic_ns()
        transport.tell(peer, number)
        other = transport.hear(peer)
        end = time.monotonic_ns()
        samples.append(((begin + end) // 2, other, end - begin))
    return sorted(samples, key=lambda sample: sample[2])[:KEPT]
