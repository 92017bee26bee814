"""How a job reaches the keeper: the program outside of MPI that has its frames or takes results.

Where it listens, and the secret of the job, are in an environment variable. Source and sink open a
connection each. Both ends prove that they know the secret, and none sends it: each one hashes it
with a number that the other one has just made up. Then records travel (:class:`.RecordForm`),
frames to the source and results from the sink. A record of the number :data:`END` is the last.
To a source that has frames of its own the launcher sends only the word to end, one byte. Such a
source may send a line for each frame that enters (:class:`Entered`).
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .errors import JobError, reason_of
from .frame_records import RecordForm

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "keeper"
"""What ``--input`` says for it."""
STREAM = "-"
"""What it says for the launcher's standard input; the bytes travel as they are, without records."""
VARIABLE = "RANKSLICE_KEEPER"
"""Environment variable with a :class:`Keeper`."""
ROLE_SOURCE, ROLE_SINK = "source", "sink"
ROLE_DRAIN = "drain"
"""Of a source that waits for the word to end."""

END = 2**64 - 1
FAILED = 1 << 63
"""Added to the number of a result: a failure record follows instead of values."""

HANDSHAKE_TIMEOUT_S = 10.0
_MAGIC = b"rankslice keeper 1\n"
_NONCE_BYTES = 16
_PROOF_BYTES = 32
_HELLO = struct.Struct(f"<{len(_MAGIC)}s6s6sI{_NONCE_BYTES}s")
"""Magic, role, byte order, epoch, and a number that the keeper hashes."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Where a job finds the keeper of its frames."""

    source: tuple[str, int]
    """Address and port for the source."""
    sink: tuple[str, int]
    secret: str
    """Of the job, in hexadecimal digits."""
    epoch: int = 0
    """Number of the job among those that have the same frames."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Entered:
    """A frame that has entered the pipeline."""

    frame: int
    arrival: int
    """Its number among all that arrived, those that were dropped included."""
    arrived_s: float
    """When it arrived, in seconds of Unix time, by the clock of the source's board."""
    name: str

    def to_line(self) -> bytes:
        return json.dumps([self.frame, self.arrival, self.arrived_s, self.name]).encode() + b"\n"

    @staticmethod
    def of_line(line: bytes) -> Entered:
        """Read a line of :meth:`to_line`.

        Raises:
            ValueError: it is none.
        """
        fields = json.loads(line)
        kinds = [type(value) for value in fields] if isinstance(fields, list) else []
        if kinds != [int, int, float, str] or not math.isfinite(fields[2]):
            raise ValueError(f"not a frame that entered: {line!r}")
        return Entered(*fields)


def is_kept(inputs: Sequence[str]) -> bool:
    return list(inputs) == [NAME]


def is_streamed(inputs: Sequence[str]) -> bool:
    return list(inputs) == [STREAM]


def keeper_from(environment: Mapping[str, str]) -> Keeper:
    """Read :data:`VARIABLE`.

    Raises:
        JobError: the environment names no keeper.
    """
    try:
        known = json.loads(environment[VARIABLE])
        source, sink = tuple(known["source"]), tuple(known["sink"])
        return Keeper(source, sink, str(known["secret"]), int(known["epoch"]))
    except (KeyError, TypeError, ValueError):
        raise JobError(
            f"--input {NAME}: the environment variable {VARIABLE} names no keeper: open the build"
            " folder with rankslice.open"
        ) from None


def connect(role: str) -> socket.socket:
    """Connect to the keeper of this job, in one of the roles.

    Raises:
        JobError: there is none, or what listens there does not know the secret.
    """
    keeper = keeper_from(os.environ)
    address = keeper.sink if role == ROLE_SINK else keeper.source
    where = f"the keeper at {address[0]} port {address[1]}"
    try:
        connection = socket.create_connection(address, HANDSHAKE_TIMEOUT_S)
    except OSError as error:
        raise JobError(f"{where} cannot be reached: {reason_of(error)}") from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = secrets.token_bytes(_NONCE_BYTES)
        order = sys.byteorder.encode()
        hello = _HELLO.pack(_MAGIC, role.encode(), order, keeper.epoch, asked)
        connection.sendall(hello)
        answer = bytearray(_NONCE_BYTES + _PROOF_BYTES)
        if not receive(connection, answer):
            raise JobError(f"{where} refuses the connection of the {role}")
        if not hmac.compare_digest(
            _proof(keeper.secret, b"keeper", asked, b""), answer[_NONCE_BYTES:]
        ):
            raise JobError(f"{where} does not know the secret of this job")
        connection.sendall(_proof(keeper.secret, b"rank", bytes(answer[:_NONCE_BYTES]), hello))
        connection.settimeout(None)
    except OSError as error:
        connection.close()
        raise JobError(f"{where} does not answer: {reason_of(error)}") from None
    except JobError:
        connection.close()
        raise
    return connection


def accept(connection: socket.socket, secret_of: Callable[[int], str]) -> tuple[str, int] | None:
    """Identify who has connected: its role and epoch; ``None``: nobody of this job.

    It takes :data:`HANDSHAKE_TIMEOUT_S` at most for each of the two answers. ``secret_of`` returns
    the secret of an epoch, which the other end has to know.
    """
    connection.settimeout(HANDSHAKE_TIMEOUT_S)
    hello = bytearray(_HELLO.size)
    try:
        if not receive(connection, hello):
            return None
        magic, role, order, epoch, asked = _HELLO.unpack(hello)
        if magic != _MAGIC or order != sys.byteorder.encode():
            return None
        mine, secret = secrets.token_bytes(_NONCE_BYTES), secret_of(epoch)
        connection.sendall(mine + _proof(secret, b"keeper", asked, b""))
        proof = bytearray(_PROOF_BYTES)
        if not receive(connection, proof):
            return None
        if not hmac.compare_digest(proof, _proof(secret, b"rank", mine, bytes(hello))):
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
    except OSError:
        return None
    return role.rstrip(b"\0").decode("ascii", "replace"), epoch


def _proof(secret: str, who: bytes, asked: bytes, hello: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(secret), who + asked + hello, "sha256")


def receive(connection: socket.socket, into: bytearray | memoryview) -> bool:
    """Fill a buffer; return whether the other end has sent so much.

    Raises:
        OSError: the connection is broken, or too slow.
    """
    left = memoryview(into)
    while left:
        count = connection.recv_into(left)
        if not count:
            return False
        left = left[count:]
    return True


def send(connection: socket.socket, head: bytes, tensors: Sequence[NDArray[Any]] = ()) -> None:
    """Send a record; raises :class:`OSError` if the connection is broken."""
    left = [memoryview(head), *(bytes_of(values) for values in tensors)]
    while left:
        count = connection.sendmsg(left)
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if left:
            left[0] = left[0][count:]


def bytes_of(values: NDArray[Any]) -> memoryview:
    return values.reshape(-1).view("uint8").data


def receive_head(connection: socket.socket, form: RecordForm) -> tuple[int, tuple[int, ...]] | None:
    """Receive the number and the sizes of the next record; ``None``: no more come.

    Raises:
        OSError: the connection is broken.
    """
    head = bytearray(form.head.size)
    if not receive(connection, head):
        return None
    return form.head.unpack(head)[0], form.sizes(head, 0)
