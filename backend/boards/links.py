"""Links between boards: whether they reach each other, and how fast."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from rankslice.backend.boards.answers import complaint_of
from rankslice.backend.boards.parallel import outcomes
from rankslice.backend.boards.probe import Conversation
from rankslice.backend.boards.probed import Exchange, Port, Route
from rankslice.framework.errors import RankSliceError

_REACH_S = 20.0
_EXCHANGE_S = 60.0
_ALL_EXCHANGES_S = 30.0
_LONGEST_EXCHANGE_S = 0.5
_SHORTEST_EXCHANGE_S = 0.2


class BoardLinks:
    """Boards that listen for connections from each other, at ports that their systems choose.

    A job may use any port, so this finds firewalls.
    """

    def __init__(self, boards: Mapping[str, Conversation], addresses: Mapping[str, str]) -> None:
        self._boards = boards
        self._addresses = addresses
        self._token = secrets.token_hex(16)
        ports = outcomes(self._listen, list(boards))
        self._ports = dict(zip(boards, ports, strict=True))

    def _listen(self, name: str) -> int:
        address = self._addresses[name]
        return self._boards[name].ask(Port, "listen", address=address, token=self._token).port

    def complaints(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return for each pair why the first cannot connect to the second; empty: it can."""
        targets: dict[str, list[str]] = {}
        for source, target in pairs:
            if isinstance(self._ports[target], int):
                targets.setdefault(source, []).append(target)
        answers = outcomes(lambda source: self._reach(source, targets[source]), list(targets))
        told = {
            (source, target): complaint
            for source, outcome in zip(targets, answers, strict=True)
            for target, complaint in _by_target(targets[source], outcome)
        }
        return [told.get(pair, _cannot_listen(self._ports[pair[1]])) for pair in pairs]

    def _reach(self, source: str, targets: Sequence[str]) -> list[str]:
        peers = [(self._addresses[target], self._ports[target]) for target in targets]
        details = {"targets": peers, "token": self._token}
        board = self._boards[source]
        return board.complaints(len(peers), "reach", timeout_s=_REACH_S, **details)

    def route(self, source: str, target: str, seconds: float) -> Route:
        """Return latency and bandwidth from one board to another, measured for some seconds."""
        peer = {"address": self._addresses[target], "port": self._ports[target]}
        details = {**peer, "token": self._token, "seconds": seconds}
        try:
            told = self._boards[source].ask(Exchange, "exchange", timeout_s=_EXCHANGE_S, **details)
        except RankSliceError as error:
            return Route(source, target, complaint_of(error))
        if not told.bits_per_s:
            return Route(source, target, "almost no data arrived")
        return Route(source, target, "", told.latency_us, told.bits_per_s)


def _by_target(
    targets: Sequence[str], outcome: Sequence[str] | RankSliceError
) -> Iterable[tuple[str, str]]:
    if isinstance(outcome, RankSliceError):
        return [(target, complaint_of(outcome)) for target in targets]
    return zip(targets, outcome, strict=True)


def _cannot_listen(port: int | RankSliceError) -> str:
    return f"it cannot listen: {complaint_of(port)}" if isinstance(port, RankSliceError) else ""


def measure_routes(links: BoardLinks, names: Sequence[str]) -> tuple[Route, ...]:
    """Return latency and bandwidth between all boards, in both directions, one after the other.

    All takes at most 30 seconds, or 0.2 seconds per direction if that is more.
    """
    pairs = list(permutations(names, 2))
    seconds = _ALL_EXCHANGES_S / max(1, len(pairs))
    seconds = min(_LONGEST_EXCHANGE_S, max(_SHORTEST_EXCHANGE_S, seconds))
    return tuple(
        Route(*pair, complaint) if complaint else links.route(*pair, seconds)
        for pair, complaint in zip(pairs, links.complaints(pairs), strict=True)
    )
