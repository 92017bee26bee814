"""A firewall on a board, made of rules for routes: not every kernel has packet filters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boards import Board
from boards.system import command

HIGH_PORTS = "1024-65534"


@contextmanager
def closed_high_ports(board: Board) -> Iterator[None]:
    """Let a board lose what comes to its TCP ports above 1023, answers included; ssh goes on."""
    blocked = ["pref", "10", "iif", "eth0", "ipproto", "tcp", "dport", HIGH_PORTS, "blackhole"]
    # What is for the board itself is looked up first of all as a rule.
    rule(board, "add", "pref", "100", "table", "local")
    rule(board, "del", "pref", "0")
    rule(board, "add", *blocked)
    try:
        yield
    finally:
        rule(board, "add", "pref", "0", "table", "local")
        rule(board, "del", "pref", "100")
        rule(board, "del", "pref", "10")


def rule(board: Board, *words: str) -> None:
    """Change the rules by which a board finds routes."""
    command(["ip", "-netns", board.names.namespace, "rule", *words])
