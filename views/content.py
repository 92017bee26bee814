"""What is shown, as data: tables, figures and notices, which a page and the terminal render."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal

from rankslice.framework.wording import printable

UNKNOWN = "–"
"""In tables, of figures that are not known."""
_NO_FIGURES = ("", "-", UNKNOWN, "?")
_NUMBER = r"\d[\d,]*(\.\d+)?(e[+-]?\d+)?"
_FIGURE = re.compile(rf"[<=±~]*-?{_NUMBER}(-{_NUMBER})?(?![\w.-])")
"""A text that begins with a number: ``<=1.54 kB``, ``0.9 to 1.1``, ``600-1500 MHz``."""


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows; the first cell of each is its name."""

    kind: ClassVar[str] = "table"
    """What the template does with it."""
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def right(self) -> tuple[int, ...]:
        """Numbers of the columns of figures, which are aligned to the right; never the first."""
        columns = enumerate(zip(*self.rows, strict=True))
        return tuple(number for number, cells in columns if number and _are_figures(cells))


MAX_ROWS = 100
"""Of a table that may have any number."""


def first_rows(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[Table | str]:
    """Yield a table of the first rows, without empty columns; then how many rows follow."""
    used = [number for number in range(len(head)) if any(row[number] for row in rows)]
    kept = [tuple(printable(row[number]) for number in used) for row in (head, *rows[:MAX_ROWS])]
    yield Table(caption, kept[0], tuple(kept[1:]))
    if len(rows) > MAX_ROWS:
        yield f"... and {len(rows) - MAX_ROWS} more rows; --json FILE has all"


def _are_figures(cells: tuple[str, ...]) -> bool:
    known = [cell for cell in cells if cell not in _NO_FIGURES]
    return bool(known) and all(map(_FIGURE.match, known))


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, and the values in it. The terminal shows neither."""

    kind: ClassVar[str] = "figure"
    caption: str
    svg: str
    """Own markup, as the functions of ``charts.py`` return it."""
    values: Table | None = None
    """What can be copied."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Texts that stand out; without any, nothing is shown."""

    kind: ClassVar[str] = "notice"
    label: str
    """What they are, for screen readers: ``Answer``."""
    texts: tuple[str, ...]
    """Clauses, which a page shows as sentences, or sentences."""
    level: Literal["", "note", "warning"] = ""
    """Whether they say what is missing or must not be compared."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(map(sentence, self.texts))


def sentence(text: str) -> str:
    """Return a clause with a full stop, and a capital unless it begins with a name."""
    first = text.partition(" ")[0]
    if first.isalpha():
        text = f"{text[:1].upper()}{text[1:]}"
    return text if text.endswith((".", ":", "!", "?")) else f"{text}."


@dataclass(frozen=True, slots=True)
class Code:
    """What is typed, or lies in a file."""

    kind: ClassVar[str] = "code"
    caption: str
    text: str


@dataclass(frozen=True, slots=True)
class Html:
    """Own markup, with the script and the style that it needs. Texts in it are escaped already."""

    kind: ClassVar[str] = "markup"
    html: str
    script: str = ""
    """Runs in a function of its own, after the page is there; values are read from the markup
    (``data_block``)."""
    style: str = ""


Part = Table | Figure | Notice | Code | Html


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    title: str
    """Empty: none is shown."""
    text: tuple[str, ...] = ()
    """Paragraphs."""
    parts: tuple[Part, ...] = ()

    @property
    def groups(self) -> list[tuple[bool, list[Part]]]:
        """The parts in order; figures that follow each other, which stand side by side, as one."""
        grouped = groupby(self.parts, lambda part: isinstance(part, Figure))
        return [(are_figures, list(parts)) for are_figures, parts in grouped]


@dataclass(frozen=True, slots=True)
class Page:
    """All that is on a page."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
