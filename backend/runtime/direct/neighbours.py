"""Streams between the ranks of one board, over which they hand over messages and descriptors.

Each rank listens at a socket with a random name, and sends the others its address through MPI.
Whoever can connect to it is on the same board, whatever host names say: such names belong to a
network namespace. Both ends of a connection check the other's account and process number, as the
kernel tells them, so another account can neither connect nor be connected to, whatever it knows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from ..errors import JobError, NeighbourDiedError
from ..keeper import receive

MAX_DESCRIPTORS = 200
"""With one message; the kernel's limit is 253."""
_MAX_MESSAGE_BYTES = 256 << 20

_MAX_CALLS = 4096
"""Connections that may wait at a listener, unless the system's own limit is lower."""
_MAX_IN_FLIGHT_S = 30.0
"""How long to wait while all ranks together have sent as many descriptors as their user may."""

_HEADER = struct.Struct("=QI")
"""Length of the message, number of descriptors."""
_NUMBER = struct.Struct("=I")
"""What a caller says: its rank."""
_CREDENTIALS = struct.Struct("=iII")
"""Process, user and group, as in ``struct ucred``."""
_SO_PEERPIDFD = 77
"""Since Linux 6.5: a handle of the process at the other end; ``socket`` has no name for it."""

_Pairs: TypeAlias = frozenset[tuple[int, int]]


def listen() -> socket.socket:
    """Return a socket without a file, at which other ranks of the board call.

    Raises:
        JobError: the system refuses it.
    """
    try:
        with contextlib.ExitStack() as opened:
            listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(f"\0rankslice-{secrets.token_hex(16)}")
            listener.listen(_MAX_CALLS)
            listener.setblocking(False)
            opened.pop_all()
            return listener
    except OSError as error:
        raise JobError(
            f"cannot listen for the other ranks of this board ({error.strerror}): run with"
            " --no-direct"
        ) from None


def address_of(listener: socket.socket) -> str:
    """Return the address for :func:`find_neighbours`; it cannot be guessed."""
    return bytes(listener.getsockname()).decode()


class Neighbour:
    """Another rank of the board, and the stream to it."""

    def __init__(self, rank: int, stream: socket.socket, *, sends_first: bool) -> None:
        """Take over a connected stream; ``sends_first``: see :func:`swap`."""
        self.rank = rank
        self.sends_first = sends_first
        self.process, _ = _credentials(stream)
        self._stream = stream
        self.death = _death(stream, self.process)
        """A descriptor, readable once the process has ended. Where the kernel gives none for this,
        it is the stream's own, which is readable while a message waits, too."""

    def send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a message with copies of descriptors; wait until the stream has taken it.

        Raises:
            JobError: the other process has ended, or the system refuses the descriptors.
        """
        header = _HEADER.pack(len(message), len(descriptors))
        deadline = time.monotonic() + _MAX_IN_FLIGHT_S
        try:
            while True:
                try:
                    socket.send_fds(self._stream, [header], [*descriptors])
                    break
                except OSError as error:
                    if error.errno != errno.ETOOMANYREFS or time.monotonic() > deadline:
                        raise
                time.sleep(0.001)
            if message:  # the other end may already have closed after an empty one
                self._stream.sendall(message)
        except OSError as error:
            raise self._failure(error) from None

    def receive(self) -> tuple[bytes, list[int]]:
        """Wait for a message; return it with its descriptors, which are the caller's to close.

        Raises:
            JobError: the other process has ended, or not all has arrived.
        """
        descriptors: list[int] = []
        try:
            # Not by recv_fds(), which lets programs that are started inherit them.
            header, ancillary, flags, _ = self._stream.recvmsg(
                _HEADER.size,
                socket.CMSG_SPACE(MAX_DESCRIPTORS * array("i").itemsize),
                socket.MSG_CMSG_CLOEXEC,
            )
            descriptors = _descriptors(ancillary)
            if len(header) < _HEADER.size:
                raise self._ended()
            length, count = _HEADER.unpack(header)
            if flags & socket.MSG_CTRUNC or count != len(descriptors):
                raise JobError(
                    f"rank {self.rank}: {len(descriptors)} of its {count} descriptors arrived:"
                    " raise the limit of open files (ulimit -n), or run with --no-direct"
                )
            if length > _MAX_MESSAGE_BYTES:
                raise JobError(
                    f"rank {self.rank}: sent a message of {length} bytes, expected at most"
                    f" {_MAX_MESSAGE_BYTES}"
                )
            message = bytearray(length)
            if not receive(self._stream, message):
                raise self._ended()
            return bytes(message), descriptors
        except BaseException as error:
            close_all(descriptors)
            if isinstance(error, OSError):
                raise self._failure(error) from None
            raise

    def _ended(self) -> JobError:
        return NeighbourDiedError(
            f"rank {self.rank}: its process (number {self.process}) has ended, or given up"
        )

    def _failure(self, error: OSError) -> JobError:
        if error.errno in (errno.EPIPE, errno.ECONNRESET):
            return self._ended()
        if error.errno == errno.ETOOMANYREFS:
            return JobError(
                f"rank {self.rank}: too many descriptors are in flight: raise the limit of open"
                " files (ulimit -n), or run with --no-direct"
            )
        return JobError(f"rank {self.rank}: its stream has failed ({error.strerror})")

    def hang_up(self) -> None:
        """Let the other end wait for nothing more."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.death not in (-1, self._stream.fileno()):
            os.close(self.death)
        self.death = -1
        self._stream.close()


class Discovery(NamedTuple):
    """The result of :func:`find_neighbours`; pairs have the lower rank first."""

    neighbours: dict[int, Neighbour]
    """Of this rank."""
    pairs: _Pairs
    """All ranks that are neighbours, the same on every rank."""
    foreign: _Pairs
    """Ranks on one board that are no neighbours because their processes belong to two accounts; the
    same on every rank."""


def find_neighbours(
    rank: int,
    processes: Sequence[int],
    listener: socket.socket | None,
    addresses: Sequence[str],
    allgather: Callable[[list[int]], list[list[int]]],
) -> Discovery:
    """Connect the ranks of each board with each other. Collective.

    Each rank connects to all lower ranks. A rank that cannot be reached is on another board, or in
    another container; that is no error. Connections are made before the first ``allgather`` ends,
    and accepted after it: so all that will come wait already, and no rank waits for another one
    outside ``allgather``.

    Args:
        processes: by rank, its process number as it sees it itself.
        listener: of this rank, which may close it afterwards; ``None`` if it wants no neighbours.
        addresses: by rank, the address of its listener; empty if it wants no neighbours.
        allgather: gives a list to all ranks and returns everybody's, by rank.
    """
    streams, strange = _call_lower_ranks(rank, processes, addresses)
    try:
        reached = allgather(sorted(streams))
        callers = {
            other: processes[other]
            for other in range(rank + 1, len(processes))
            if rank in reached[other]
        }
        streams.update(_accept(listener, callers))
        accepted = allgather(sorted(streams))
        foreign = allgather(strange)
    except BaseException:
        for stream in streams.values():
            stream.close()
        raise
    ranks = range(len(processes))
    pairs = frozenset(
        (low, high)
        for low, high in combinations(ranks, 2)
        if low in accepted[high] and high in accepted[low]
    )
    for other in [*streams]:
        if (min(rank, other), max(rank, other)) not in pairs:
            streams.pop(other).close()
    return Discovery(
        neighbours={
            other: Neighbour(other, streams[other], sends_first=rank < other)
            for other in sorted(streams)
        },
        pairs=pairs,
        foreign=frozenset((low, high) for high in ranks for low in foreign[high]),
    )


def _call_lower_ranks(
    rank: int, processes: Sequence[int], addresses: Sequence[str]
) -> tuple[dict[int, socket.socket], list[int]]:
    """Connect to ranks with which to share memory; list those of other accounts."""
    streams: dict[int, socket.socket] = {}
    foreign: list[int] = []
    for other in range(rank):
        stream = _call(addresses[other], rank) if addresses[rank] and addresses[other] else None
        if stream is None:
            continue
        process, user = _credentials(stream)
        if (process, user) == (processes[other], os.geteuid()):
            streams[other] = stream
            continue
        stream.close()
        if user != os.geteuid():
            foreign.append(other)
    return streams, foreign


def _call(address: str, rank: int) -> socket.socket | None:
    """Connect to a listener and send the own rank; ``None`` if nobody listens there."""
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        stream = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        # A full queue would not become shorter: calls are accepted after all have been made.
        stream.setblocking(False)
        stream.connect(address)
        stream.sendall(_NUMBER.pack(rank))
        stream.setblocking(True)
        opened.pop_all()
        return stream
    return None


def _accept(listener: socket.socket | None, callers: Mapping[int, int]) -> dict[int, socket.socket]:
    """Accept the connections of some ranks, by their process numbers; refuse all others."""
    accepted: dict[int, socket.socket] = {}
    # A stranger who calls again and again comes after all that waited.
    for _ in range(_MAX_CALLS + 1):
        if listener is None or len(accepted) == len(callers):
            break
        try:
            stream = listener.accept()[0]
        except OSError:
            break
        caller = -1  # one that says nothing
        with contextlib.suppress(OSError, struct.error):
            caller = _NUMBER.unpack(stream.recv(_NUMBER.size, socket.MSG_DONTWAIT))[0]
        expected = (callers.get(caller), os.geteuid())
        if caller not in accepted and _credentials(stream) == expected:
            accepted[caller] = stream
        else:
            stream.close()
    return accepted


def swap(
    neighbours: Mapping[int, Neighbour], messages: Mapping[int, tuple[bytes, Sequence[int]]]
) -> dict[int, tuple[bytes, list[int]]]:
    """Send each neighbour its message with descriptors; return theirs. Collective on a board.

    It cannot come to a standstill, however large the messages are. Each rank takes its neighbours
    in ascending order, so all ranks take their pairs in the order of (lower rank, higher rank). Of
    all pairs that are not done, both ends of the first one are at it: they have nothing left to do
    before it. There the lower rank sends while the higher one receives, then the other way round.

    Raises:
        JobError: not all has arrived; what has is closed.
        NeighbourDiedError: the same because a neighbour has ended, or failed itself.
    """
    received: dict[int, tuple[bytes, list[int]]] = {}
    try:
        for rank, neighbour in sorted(neighbours.items()):
            if neighbour.sends_first:
                neighbour.send(*messages[rank])
            received[rank] = neighbour.receive()
            if not neighbour.sends_first:
                neighbour.send(*messages[rank])
    except BaseException:
        for neighbour in neighbours.values():
            neighbour.hang_up()
        for _, descriptors in received.values():
            close_all(descriptors)
        raise
    return received


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _credentials(stream: socket.socket) -> tuple[int, int]:
    """Process number and user of the other end, as they were when it connected."""
    packed = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(packed)
    return process, user


def _death(stream: socket.socket, process: int) -> int:
    """Get a handle of the process at the other end, or the stream's descriptor."""
    with contextlib.suppress(OSError):
        return stream.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    with contextlib.suppress(OSError):
        return os.pidfd_open(process)
    return stream.fileno()


def _descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    descriptors = array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)
