"""Which of the lines that a failed job printed explains the failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rankslice.backend.runtime.errors import signal_name

MESSAGE = "rankslice: "
"""Begins each message of a rank; all other output on stderr is mpirun's or the engine's."""


def explain(lines: Sequence[str], code: int, *, was_killed: bool) -> str:
    """Return the message of the rank that failed first, or else all ``lines`` of stderr.

    ``was_killed``: others than the launcher have ended mpirun, and the ranks ended because of that.
    """
    if was_killed:
        messages = [line for line in lines if MESSAGE in line and not is_sudden(line)]
        others = [line for line in lines if MESSAGE not in line]
        lines = [*messages, *others]
    lines = _without_later_ends(lines)
    message = first_message(lines)
    if message:
        return message
    ended = f"signal {signal_name(-code)}" if code < 0 else f"exit code {code}"
    return "\n".join([f"mpirun ended with {ended}", *lines])


def _without_later_ends(lines: Sequence[str]) -> list[str]:
    """Leave out ranks that ended at the start because another one did, unknown to watchdogs."""
    first = _first_ended(lines)
    if not first or first.startswith(_cut_off(lines)):
        return list(lines)
    return [
        line
        for line in lines
        if not is_sudden(line) or "while it started" not in line or MESSAGE + first in line
    ]


def first_message(lines: Sequence[str]) -> str:
    """Return the message of the rank that failed first; empty: there is no message."""
    messages = [line.partition(MESSAGE)[2] for line in lines if MESSAGE in line]
    # mpirun stops the other ranks once one has failed.
    first, cut_off = _first_ended(lines), _cut_off(lines)
    messages.sort(
        key=lambda message: (
            "was told to stop" in message,
            message.startswith(cut_off),
            "was killed or crashed" in message and not message.startswith(first),
        )
    )
    return messages[0] if messages else ""


class BoardMessage(str):
    """A message on a job across boards, and what the launcher itself knows about it."""

    __slots__ = ("sender", "silent")

    sender: str
    """The board that has sent it; empty: nobody knows."""
    silent: frozenset[str]

    def __new__(cls, text: str, sender: str = "", silent: Iterable[str] = ()) -> BoardMessage:
        message = super().__new__(cls, text)
        message.sender, message.silent = sender, frozenset(silent)
        return message


def accused_rank(message: str) -> tuple[int, int]:
    """Return the rank that reports, and the one that it blames: a silent one, or itself.

    Only the begin is the runtime's; what follows may be words of an engine or a model. -1: none.
    """
    match = re.match(
        r"rank (\d{1,9}) \([^()]*\): (?:no sign of life for \d+ s from rank (\d{1,9}) \()?", message
    )
    return (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)


def is_sudden(message: str) -> bool:
    """Tell whether a watchdog's message is about a process that ended without its own message."""
    return "was told to stop" in message or "was killed or crashed" in message


def _first_ended(lines: Sequence[str]) -> str:
    """Return how the message of the rank begins that mpirun saw end first; empty: unknown.

    Watchdogs of several boards report killed ranks, also those that mpirun itself has killed.
    """
    match = re.search(r"noticed that process rank (\d+) with PID", "\n".join(lines))
    return f"rank {match[1]} (" if match else ""


def _cut_off(lines: Sequence[str]) -> tuple[str, ...]:
    """Return how the messages of ranks begin that Open MPI ended because they had lost another one.

    mpirun may notice that before the end of the lost rank.
    """
    text = "\n".join(lines)
    ranks = re.findall(r"occurred in Socket closed\n.*reported by process \[\d+,(\d+)\]", text)
    return tuple(f"rank {rank} (" for rank in ranks)
