"""What boards answer: data of a declared form, checked here, where it enters.

An answer is one line: a mark, since a shell may print, too, and a JSON object, limited as
:mod:`rankslice.framework.untrusted_json` says. It becomes a record with exactly the fields below.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from rankslice.backend.boards.agent.protocol import MARK
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.records import Only, between, read_record
from rankslice.framework.untrusted_json import MAX_NUMBER, UntrustedJsonError, untrusted_json

__all__ = [
    "MAX_BYTES",
    "Answer",
    "AnswerError",
    "BoardCheck",
    "Committed",
    "Done",
    "Fetched",
    "Received",
    "Room",
    "WatchReport",
    "answer_in",
    "read_answer",
]

MAX_BYTES = 8 << 20
"""Of an answer, and of all that is printed before it."""
Answer = dict[str, Any]
T = TypeVar("T")

_BASE = re.compile(r"(packages|staging)/[0-9a-f]{12}(\.[0-9a-f]{1,32})?")
_RUN = re.compile(r"[0-9a-f]{12}-[0-9a-f]{16}")
_MIN_PREFIX = 8
"""Of a network: MPI listens on all interfaces that are in it."""


class AnswerError(Exception):
    """A board sends what is no answer; the text says what is wrong with it."""


def answer_in(line: bytes) -> Answer | None:
    """Return the answer that a line is; ``None``: a shell has printed it.

    Raises:
        AnswerError: it is no JSON object, or has something that no answer has.
    """
    if not line.startswith(MARK.encode()):
        return None
    try:
        answer = untrusted_json(line[len(MARK) :])
    except UntrustedJsonError as error:
        raise AnswerError(str(error)) from None
    if not isinstance(answer, dict):
        raise AnswerError("it is no object")
    if not isinstance(answer.get("error", ""), str):
        raise AnswerError("its error is no text")
    return answer


def read_answer(kind: type[T], answer: Answer, place: str) -> T:
    """Return the record that an answer is.

    Args:
        kind: the dataclass.
        answer: from :func:`answer_in`.
        place: the board, for messages.

    Raises:
        RankSliceError: it is another one.
    """
    try:
        return read_record(kind, answer, place)
    except RankSliceError as error:
        first = error.mistakes[0]
        assert isinstance(first, Mistake)
        where = first.where.removeprefix(place).removeprefix(": ")
        told = ": ".join(part for part in (where, first.found) if part)
        found = f"sends an answer that is none: {told}"
        raise RankSliceError(Mistake(place, found, first.expected)) from None


def _is_network(text: str) -> bool:
    if not text:
        return True
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return str(network) == text and network.prefixlen >= _MIN_PREFIX


@dataclass(frozen=True, slots=True)
class Done:
    """It was done."""


@dataclass(frozen=True, slots=True)
class Received:
    """Whether a package is there."""

    state: Annotated[str, Only({"there", "wanted"}.__contains__, "'there' or 'wanted'")]
    bases: tuple[Annotated[str, Only(_BASE.fullmatch, "the name of a package")], ...]
    """Packages of which it may have files, by their folder and name in ``~/.rankslice``."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A package has its place."""

    state: Annotated[str, Only({"copied"}.__contains__, "'copied'")]


@dataclass(frozen=True, slots=True)
class Room:
    """What a disk still holds."""

    free_bytes: Annotated[int, between(0, MAX_NUMBER)]


@dataclass(frozen=True, slots=True)
class BoardCheck:
    """Whether a job can run."""

    problems: tuple[str, ...]
    network: Annotated[str, Only(_is_network, "an IPv4 network such as 192.168.1.0/24")]
    """Of the address at which the board is reached, as CIDR; empty: unknown."""
    hostname: str
    """What mpirun may call it."""
    bases: tuple[Annotated[str, Only(_RUN.fullmatch, "the name of a run")], ...]
    """Runs that may have the same inputs."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file follows."""

    nbytes: Annotated[int, between(0, MAX_NUMBER)]


@dataclass(frozen=True, slots=True)
class WatchReport:
    """What a watch says."""

    state: Annotated[
        str,
        Only({"watching", "alive", "message", "ended"}.__contains__, "a state of a watch"),
    ]
    message: str
    """Of a rank, or a guard; empty: none."""
    ranks: Annotated[int, between(0, MAX_NUMBER)]
    """How many processes of ranks there are."""
    daemon: bool
    """Whether there is mpirun's daemon."""
