"""``rankslice probe``: asks boards what they have, and measures what connects them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.boards.conversation import (
    BoardLinks,
    Conversation,
    address_towards,
    conversations,
    measure_routes,
    report_of,
)
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.probed import (
    BoardReport,
    Probed,
    ProbedBoard,
    is_address,
)
from rankslice.backend.boards.ssh import BoardShell, outcomes
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.specs.platform_names import check_name, name_complaints
from rankslice.framework.wording import quoted
from rankslice.session.build_folder import check_ssh_config

HERE = "local"


@dataclass(frozen=True, slots=True)
class Probing:
    probed: Probed
    """Those that answered; without routes if some did not."""
    errors: tuple[RankSliceError, ...]
    """Of those that did not."""


def probe(
    hosts: Sequence[str],
    *,
    ssh_config: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Probing:
    """Ask boards over ssh, all at once, and measure between each two of them.

    Args:
        hosts: names or addresses as ssh takes them, each with ``user@`` before it if need be;
            ``local`` is this machine.

    Raises:
        RankSliceError: a host is none, or appears twice.
    """
    logins = _logins(hosts)
    check_ssh_config(ssh_config)
    with conversations(BoardShell(login, ssh_config) for login in logins) as boards:
        on_step("asking boards")
        answers = outcomes(report_of, boards)
        errors = tuple(answer for answer in answers if isinstance(answer, RankSliceError))
        reports = [
            (talk, answer)
            for talk, answer in zip(boards, answers, strict=True)
            if isinstance(answer, BoardReport)
        ]
        named = _named(reports)
        if errors:
            return Probing(Probed(named, ()), errors)
        _raise_doubles(named)
        on_step("measuring between boards")
        talks = {board.name: talk for board, talk in zip(named, boards, strict=True)}
        addresses = {board.name: board.address for board in named}
        links = BoardLinks(talks, addresses) if len(named) > 1 else None
        return Probing(Probed(named, measure_routes(links, list(addresses)) if links else ()), ())


def _logins(hosts: Sequence[str]) -> list[Login]:
    pairs = [(user, host) for user, _, host in (text.rpartition("@") for text in hosts)]
    raise_mistakes(
        Mistake("HOST", complaint, "expected a host, user@host, or local")
        for user, host in pairs
        for complaint in name_complaints(**({"user": user} if user else {}), host=host)
    )
    times = Counter(host for _, host in pairs)
    raise_mistakes(
        Mistake("HOST", f"{quoted(host)} appears {count} times", "name each board once")
        for host, count in times.items()
        if count > 1
    )
    return [Login(host, "localhost" if host == HERE else host, user) for user, host in pairs]


# Names and addresses


def _named(reports: Sequence[tuple[Conversation, BoardReport]]) -> tuple[ProbedBoard, ...]:
    taken: set[str] = set()
    boards = []
    for talk, report in reports:
        login = talk.shell.login
        own = login.host if is_address(login.host) else ""
        others = [other for _, other in reports]
        address = report.address or own or address_towards(talk, others)
        name = label = _name(login, report)
        for number in itertools.count(2):
            if name not in taken:
                break
            name = f"{label}-{number}"
        taken.add(name)
        # To other boards, localhost is themselves.
        host = address if len(reports) > 1 and login.host == "localhost" else login.host
        boards.append(ProbedBoard(name, host, login.user, address, report))
    return tuple(boards)


def _name(login: Login, report: BoardReport) -> str:
    """Name a board as it was typed, or by its hostname if that is an address."""
    typed = report.hostname if is_address(login.board) else login.board
    label = typed.partition(".")[0]
    try:
        return check_name("board", label)
    except ValueError:
        return "board"


def _raise_doubles(boards: Sequence[ProbedBoard]) -> None:
    owners: dict[str, ProbedBoard] = {}
    mistakes = []
    for board in boards:
        first = owners.setdefault(board.address, board)
        if first is not board:
            found = f"is the same machine as {first.host}, {board.address}"
            mistakes.append(Mistake(f"board {board.name} ({board.host})", found, "name it once"))
    raise_mistakes(mistakes)
