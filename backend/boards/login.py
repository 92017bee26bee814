"""Hosts of the boards of a build folder, and the accounts for logging in there."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Board
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.specs.platform_names import check_name, name_complaints
from rankslice.framework.wording import quoted

FILE = "boards.json"

LOOPBACK = "127.0.0.1"
"""The address of this machine at which it reaches itself."""

_SHAPE = 'expected {"<board>": {"user": "<account>"}, ...}'


@dataclass(frozen=True, slots=True)
class Login:
    board: str
    host: str
    user: str = ""
    """Account for ssh; empty: ssh's own default."""

    @property
    def full_name(self) -> str:
        """The board's name in messages: ``board edge01 (10.0.0.11)``."""
        return f"board {self.board} ({self.host})"


def is_this_machine(host: str) -> bool:
    """Tell whether a host is this machine, which can then listen at that address."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            return False
    return True


def address_for(host: str) -> str:
    """Return the address of this machine at which a host reaches it.

    Raises:
        RankSliceError: there is no way to the host.
    """
    if is_this_machine(host):
        return LOOPBACK
    with suppress(OSError):
        kind, *_, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        # Nothing is sent: the kernel chooses the way to the host.
        with socket.socket(kind, socket.SOCK_DGRAM) as way:
            way.connect(there)
            return str(way.getsockname()[0])
    raise RankSliceError(Mistake(host, "cannot be reached from this machine"))


def logins_to_json(boards: Sequence[Board], plan: Plan) -> str:
    """Return the text of :data:`FILE` for the boards that a plan uses."""
    used = {placement.board for placement in plan.ranks}
    users = {board.name: {"user": board.user} for board in boards if board.name in used}
    return json.dumps(users, indent=1) + "\n"


def board_logins(folder: Path, plan: Plan) -> tuple[Login, ...]:
    """Return the boards of a build folder, in the order of the ranks.

    Raises:
        RankSliceError: ssh could not take a name, or two boards have the same host.
    """
    users = _users(folder / FILE)
    hosts = {placement.board: placement.host for placement in plan.ranks}
    logins = tuple(Login(board, host, users.get(board, "")) for board, host in hosts.items())
    raise_mistakes(
        Mistake(str(folder / "plan.json"), complaint, "build it again")
        for login in logins
        for complaint in name_complaints(board=login.board, host=login.host)
    )
    owners: dict[str, str] = {}
    for login in logins:
        other = owners.setdefault(login.host, login.board)
        if other != login.board:
            found = f"boards {quoted(other)} and {quoted(login.board)} have the same host"
            raise RankSliceError(
                Mistake(str(folder / "plan.json"), found, "make them one board in the platform")
            )
    return logins


def _users(path: Path) -> dict[str, str]:
    """Return the accounts by board; without the file there are none."""
    if not path.exists():
        return {}
    record: Any = read_json(read_text(path, "accounts of boards"), str(path), _SHAPE)
    try:
        users = {board: entry["user"] for board, entry in record.items()}
        return {board: check_name("user", user) for board, user in users.items() if user}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RankSliceError(Mistake(str(path), "is damaged", _SHAPE)) from None
