"""What a reader would type of a page of the documentation, and what it should print."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

FENCE = re.compile(r"^```(console|bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\|.* \| command \| result \|\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Step:
    """Command lines typed one after the other."""

    lines: list[list[str]]
    prints: tuple[str, ...] = ()
    """What their output must contain, without the lines of tables."""

    def lacks(self, output: str) -> list[str]:
        """Return what the output does not contain; any white space is as good as another."""
        plain = " ".join(re.sub("[\u2500-\u257f]", " ", output).split())
        return [text for text in self.prints if text not in plain]


def fenced(page: Path) -> Iterator[tuple[str, str]]:
    """Yield language and text of a page's fenced blocks."""
    yield from FENCE.findall(page.read_text(encoding="utf-8"))


def typed_lines(language: str, text: str) -> list[str]:
    """Return what a reader would type of a block: with ``console``, what stands after ``$``."""
    lines = text.replace("\\\n", " ").splitlines()
    if language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return lines


def steps(page: Path) -> list[Step]:
    """Return the command lines to run, in the order of the page.

    These are the lines of ``rankslice`` in blocks, Python blocks as scripts, and the rows of
    tables whose last columns are *command* and *result*: code there is typed, and printed.
    """
    text = page.read_text(encoding="utf-8")
    parts = [(match.start(), _of_block(*match.groups())) for match in FENCE.finditer(text)]
    parts += [(match.start(), _of_table(match[1])) for match in TABLE.finditer(text)]
    return [step for _, part in sorted(parts, key=itemgetter(0)) for step in part]


def _of_block(language: str, text: str) -> list[Step]:
    if language == "python":
        return [Step([[sys.executable, "-W", "error", "-c", text]])]
    lines = (shlex.split(line, comments=True) for line in typed_lines(language, text))
    return [Step([line]) for line in lines if line[:1] == ["rankslice"]]


def _of_table(rows: str) -> list[Step]:
    row_steps = []
    for row in rows.splitlines():
        *_, command, result, _ = row.split("|")
        lines = [shlex.split(line) for line in CODE.findall(command)]
        row_steps += [Step(lines, tuple(CODE.findall(result)))] if lines else []
    return row_steps
