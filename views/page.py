"""A page of figures as one HTML file: records in, a document out.

The file needs no network, no server and no script; with its script, tables and figures can be
copied. All texts are escaped where they are filled in. Markup comes from this program's own code
only, and the page's policy runs no other script than the one that is part of it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, ClassVar

from rankslice.framework.files.templates import render_markup, template_text


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows; the first cell of each is its name."""

    kind: ClassVar[str] = "table"
    """What the template does with it."""
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    """Numbers of the columns that are aligned to the right, from 0."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, and the values in it."""

    kind: ClassVar[str] = "figure"
    caption: str
    svg: str
    """Own markup, as the functions of ``charts.py`` return it."""
    values: Table | None = None
    """What can be copied."""
    wide: bool = False
    """Whether it takes the whole width; on a phone it is then moved sideways, not made smaller."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Sentences that stand out."""

    kind: ClassVar[str] = "notice"
    label: str
    """What they are, for screen readers: ``Answer``."""
    sentences: tuple[str, ...]
    warns: bool = False
    """Whether they say what is missing or must not be compared."""


@dataclass(frozen=True, slots=True)
class Code:
    """What is typed, or lies in a file."""

    kind: ClassVar[str] = "code"
    caption: str
    text: str


@dataclass(frozen=True, slots=True)
class Markup:
    """Own markup, with the script and the style that it needs. Texts in it are escaped already."""

    kind: ClassVar[str] = "markup"
    html: str
    script: str = ""
    """Runs in a function of its own, after the page is there; values are read from the markup
    (``data_block``)."""
    style: str = ""


Part = Table | Figure | Notice | Code | Markup


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


def page_html(page: Page) -> str:
    """Return a page as an HTML document; the same bytes for the same page.

    Raises:
        ValueError: a script or style of its markup would end its own element.
    """
    own = [part for section in page.sections for part in section.parts if isinstance(part, Markup)]
    scripts = dict.fromkeys(part.script for part in own if part.script)
    script = "".join([template_text("page.js"), *map(_in_function, scripts)])
    style = "".join([template_text("page.css"), *dict.fromkeys(part.style for part in own)])
    if "</" in script or "<!--" in script or "</" in style:
        raise ValueError("a page's script or style has the end of an element in it")
    return render_markup(
        "page.html.j2",
        page=page,
        style=style,
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _in_function(script: str) -> str:
    return f"(function () {{\n{script}}})();\n"


def data_block(name: str, value: Any) -> str:
    """Return a value of JSON as markup that shows nothing, for a script of the page to read.

    The script reads ``JSON.parse(document.getElementById(name).textContent)``.
    """
    # In JSON these occur in texts alone.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return render_markup("data_block.html.j2", name=name, text=text)
