"""Answers of boards, validated where they enter.

An answer is one line: a mark, because a shell may print lines of its own, and a JSON object within
the limits of :mod:`rankslice.framework.reading.untrusted_json`. It becomes a record with exactly
the fields below.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from rankslice.backend.agent.protocol import MARK
from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.records import Only, between, read_record
from rankslice.framework.reading.untrusted_json import (
    MAX_NUMBER,
    UntrustedJsonError,
    untrusted_json,
)

MAX_BYTES = 8 << 20
"""Of an answer, and of all that is printed before it."""
Answer = dict[str, Any]
T = TypeVar("T")

_BASE = re.compile(r"(packages|staging)/[0-9a-f]{12}(\.[0-9a-f]{1,32})?")
_RUN = re.compile(r"[0-9a-f]{12}-[0-9a-f]{16}")
_QUANTITY = re.compile(r"[a-z0-9_]{1,32}(\.[ -~]{1,64})?")
_NAME = re.compile(r"[ -~]{0,64}")
_MAX_VALUE = 1e15
_MAX_VALUES = 1024
_STATES = frozenset(("watching", "alive", "message", "sample", "ended"))
_MIN_PREFIX = 8
"""Of a network: MPI listens on all interfaces that are in it."""


def answer_in(line: bytes) -> Answer | None:
    """Return the answer in a line; ``None``: a shell has printed it.

    Raises:
        UntrustedJsonError: it is not a JSON object, or its ``error`` is not a text.
    """
    if not line.startswith(MARK.encode()):
        return None
    answer = untrusted_json(line[len(MARK) :])
    if not isinstance(answer, dict):
        raise UntrustedJsonError("it is not an object")
    if not isinstance(answer.get("error", ""), str):
        raise UntrustedJsonError("its error is not a text")
    return answer


def read_answer(kind: type[T], answer: Answer, board: str) -> T:
    """Return an answer as a record.

    Raises:
        RankSliceError: the board says why it did not do what was asked, or the answer does not
            have the fields of the record.
    """
    if "error" in answer:
        raise RankSliceError(Mistake(board, answer["error"]))
    try:
        return read_record(kind, answer, board)
    except RankSliceError as error:
        first = error.mistakes[0]
        assert isinstance(first, Mistake)
        where = first.where.removeprefix(board).removeprefix(": ")
        fault = ": ".join(part for part in (where, first.found) if part)
        raise invalid_answer(board, fault, first.expected) from None


def invalid_answer(board: str, found: str, expected: str = "") -> RankSliceError:
    return RankSliceError(Mistake(board, f"sends an invalid answer: {found}", expected))


def naming_folder(text: str, folder: Path) -> str:
    """Name a build folder where a board can only say ``OUT``."""
    return text.replace("rankslice deploy OUT", f"rankslice deploy {shlex.quote(str(folder))}")


def complaint_of(error: RankSliceError) -> str:
    """Return the first message of an error, without its place."""
    first = error.mistakes[0]
    return first.found if isinstance(first, Mistake) else first


def _is_network(text: str) -> bool:
    if not text:
        return True
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return str(network) == text and network.prefixlen >= _MIN_PREFIX


def is_ipv4(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.IPv4Address(text))
    return False


_NoAddress = Annotated[str, Only(lambda text: not text or is_ipv4(text), "an IPv4 address")]


def _is_bounded(sample: dict[str, Any]) -> bool:
    values = sample["values"]
    return (
        max(len(values), len(sample["absent"])) <= _MAX_VALUES
        and all(map(_QUANTITY.fullmatch, values))
        and max(map(abs, values.values()), default=0) <= _MAX_VALUE
        and sample["time_ns"] >= 0
    )


_SAMPLE = Only(_is_bounded, f"a sample of {_MAX_VALUES} quantities or fewer")


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True, slots=True)
class Received:
    state: Annotated[str, Only({"there", "wanted"}.__contains__, "'there' or 'wanted'")]
    bases: tuple[Annotated[str, Only(_BASE.fullmatch, "the name of a package")], ...]
    """Packages that may share files with it, by folder and name in ``~/.rankslice``."""


@dataclass(frozen=True, slots=True)
class Room:
    free_bytes: Annotated[int, between(0, MAX_NUMBER)]


@dataclass(frozen=True, slots=True)
class BoardCheck:
    """Whether a board can run its part of a job."""

    problems: tuple[str, ...]
    network: Annotated[str, Only(_is_network, "an IPv4 network such as 192.168.1.0/24")]
    """The network of the address at which the board is reached, as CIDR; empty: unknown."""
    hostname: str
    """How mpirun may name the board."""
    bases: tuple[Annotated[str, Only(_RUN.fullmatch, "the name of a run")], ...]
    """Earlier runs that may have the same inputs."""
    free_bytes: Annotated[int, between(0, MAX_NUMBER)] | None = None
    """Memory and swap that programs can get; ``None``: the board does not tell."""
    cores: Annotated[int, between(1, MAX_NUMBER)] = 1
    governor: Annotated[str, Only(_NAME.fullmatch, "a short word")] = ""
    """Of the frequency of its first core; empty: the board does not tell."""
    mode: BoardMode = field(default_factory=BoardMode)
    load: Annotated[float, between(0, _MAX_VALUE)] = 0.0
    """Mean number of processes that could run, in the last minute."""
    address: _NoAddress = ""
    """At which it is reached; empty: unknown. Its host may be a name that only ssh knows."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file follows."""

    nbytes: Annotated[int, between(0, MAX_NUMBER)]


@dataclass(frozen=True, slots=True)
class CoRunnerReport:
    cores: Annotated[float, between(0, _MAX_VALUE)]
    """Processor time over time."""


@dataclass(frozen=True, slots=True)
class HeldFrequency:
    khz: Annotated[int, between(0, MAX_NUMBER)]
    """To which the kernel limits the clocks of ranks, the lowest one; 0: nothing is set."""


@dataclass(frozen=True, slots=True)
class WatchReport:
    state: Annotated[str, Only(_STATES.__contains__, "a state of a watch")]
    message: str
    """Of a rank, or a watchdog; empty: none."""
    ranks: Annotated[int, between(0, MAX_NUMBER)]
    daemon: bool
    sample: Annotated[Sample, _SAMPLE] | None = None
    """In a report of state ``sample``."""


@dataclass(frozen=True, slots=True)
class ClockReport:
    """The answer of a watch to a number that the launcher has sent."""

    ping: Annotated[int, between(0, MAX_NUMBER)]
    clock_ns: Annotated[int, between(0, MAX_NUMBER)]
    """The board's CLOCK_MONOTONIC when it came."""
