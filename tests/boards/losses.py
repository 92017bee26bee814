"""Ways to lose a board, and to mend it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from boards.board import Board
from boards.deployments import signal_rank


def kill_rank(board: Board) -> None:
    """Kill the rank that has frames on a board."""
    signal_rank(board, signal.SIGKILL)


@dataclass(frozen=True)
class Loss:
    """A way to lose a board."""

    strike: Callable[[Board], None]
    mend: Callable[[Board], None] = lambda board: None


LOSSES = {
    "rank killed": Loss(kill_rank),
    "power cut": Loss(Board.cut_power, Board.power_on),
    "cable pulled": Loss(Board.unplug, Board.plug_in),
    "frozen": Loss(Board.stop, Board.resume),
}
