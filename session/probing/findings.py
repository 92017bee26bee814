"""What comes of checking boards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.boards.board_packages import Package
from rankslice.backend.boards.conversation import Conversation
from rankslice.backend.boards.probed import BoardReport
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Board

OK, WARN, FAIL = "ok", "warn", "fail"

HERE = "this machine"
DEPLOY_VENV = "rankslice deploy OUT --venv"
"""Installs what a board lacks."""


@dataclass(frozen=True, slots=True)
class Finding:
    place: str
    """A board, two of them, or this machine."""
    check: str
    state: str
    """``ok``, ``warn``: a job runs, but not as it should, or ``fail``."""
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Job:
    folder: Path
    plan: Plan
    packages: Mapping[str, Package]
    """By board."""


@dataclass(frozen=True, slots=True)
class Answer:
    board: Board
    talk: Conversation
    report: BoardReport


def failed(place: str, check: str, text: str) -> Finding:
    """Return a failure, from a message that says in one sentence what is wrong and what to do."""
    found, _, remedy = text.partition("; ")
    return Finding(place, check, FAIL, found, remedy)


def message_of(error: RankSliceError) -> str:
    mistake = error.mistakes[0]
    if not isinstance(mistake, Mistake):
        return mistake
    return f"{mistake.found}; {mistake.expected}" if mistake.expected else mistake.found
