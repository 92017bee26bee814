"""Options of ``run`` that may stand without a value."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from typer.core import TyperCommand

from rankslice.commands.run.boxes.reading import MOST_OVERLAP


class Verify(str, Enum):
    """How results are compared with the unsliced model's."""

    deployed = "deployed"
    exact = "exact"


TYPED = "rankslice.typed"
"""Where the context of the command has its arguments as they were typed."""
_TERMINAL = "/dev/tty"
"""What ``--live`` means without a value."""
_NAMES_FILE = re.compile(r"-|(?!-).*[./].*")
"""What may be a value of ``--live``; other words, as of a build folder, are none."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf")


class RunCommand(TyperCommand):
    """The command, whose ``--verify``, ``--live`` and ``--nms`` may stand without a value.

    ``--frames unlimited`` is a switch, ``--unlimited``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = tuple(args)
        spelled: list[str] = []
        for argument, following in zip(args, [*args[1:], ""], strict=False):
            if (spelled[-1:], argument) == (["--frames"], "unlimited"):
                spelled[-1] = "--unlimited"
                continue
            spelled.append("--unlimited" if argument == "--frames=unlimited" else argument)
            if argument == "--verify" and following not in [mode.value for mode in Verify]:
                spelled.append(Verify.deployed.value)
            if argument == "--live" and not _NAMES_FILE.fullmatch(following):
                spelled.append(_TERMINAL)
            if argument == "--nms" and not _NUMBER.fullmatch(following):
                spelled.append(str(MOST_OVERLAP))
        return super().parse_args(ctx, spelled)
