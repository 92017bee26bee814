"""SVG and HTML from Python: elements whose texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from markupsafe import Markup, escape
from rich.cells import cell_len

from rankslice.framework.wording import harmless
from rankslice.views.content import Table

Value = str | float | None

MARGIN = 20
"""Of a document; this and all other lengths are pixels."""
ROW = 22
"""Height of a row of text."""
_LETTER = 7.25
"""Width of a letter at 12 pixels, in the widest of the usual monospaced fonts."""
_MIN_LETTERS = 4


def element(tag: str, *content: str, **attributes: Value) -> Markup:
    """Return an element; texts in it lose their control characters, and markup stays as it is.

    Args:
        tag: its name.
        content: texts and markup.
        attributes: ``None`` leaves one out; ``class_`` is ``class``, ``aria_label`` is
            ``aria-label``.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if not content:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{''.join(map(_escaped, content))}</{tag}>")


def _escaped(value: str | float) -> str:
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return str(escape(harmless(value.replace("\t", " "))))
    return f"{round(value, 2):g}" if abs(value) < 1e5 else f"{value:.0f}"


def picture(
    label: str, width: float, height: float, content: Iterable[Markup], role: str = "img"
) -> Markup:
    """Return an SVG picture of so many pixels, which a page scales to the room that it has."""
    inside = Markup("\n").join(["", *content, ""])
    view = f"0 0 {width:g} {height:g}"
    return element("svg", inside, viewBox=view, role=role, aria_label=label)


_DOCUMENT_STYLE = """
text {
  font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  fill: #24292f; dominant-baseline: central; unicode-bidi: isolate; white-space: pre;
}
.title { font-size: 17px; font-weight: 600; }
.dim { fill: #6b7480; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
"""


def document(
    label: str, width: float, height: float, content: Iterable[Markup], style: str
) -> Markup:
    """Return a picture that is a file of its own, on white; the same bytes for the same content."""
    parts = (
        element("style", Markup(_DOCUMENT_STYLE + style)),
        element("rect", width="100%", height="100%", fill="#ffffff"),
        *content,
    )
    return element(
        "svg",
        Markup("\n").join(["", *parts, ""]),
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
    ) + Markup("\n")


def heading(title: str, subtitle: str) -> tuple[Markup, Markup]:
    """Return the first two lines of a document, which end at 64 pixels."""
    return (
        element("text", title, x=MARGIN, y=28, class_="title"),
        element("text", subtitle, x=MARGIN, y=54, class_="dim"),
    )


def bar(x: float, y: float, width: float, height: float, **attributes: Value) -> Markup:
    """Return a rectangle; ``y`` is its middle."""
    box = {"x": x, "y": y - height // 2, "width": width, "height": height}
    return element("rect", **box, **attributes)


def column_starts(columns: Iterable[Iterable[str]], left: int) -> list[int]:
    """Return the left ends of columns as wide as their texts, and the right end of the last."""
    longest = (max((_MIN_LETTERS, *map(cell_len, texts))) for texts in columns)
    return [*accumulate((int(letters * _LETTER) + 16 for letters in longest), initial=left)]


def table_texts(table: Table, left: int, top: int) -> tuple[list[Markup], int]:
    """Return the texts of a table, with a row of its head, and where it ends to the right."""
    *starts, end = column_starts(zip(table.head, *table.rows, strict=True), left)
    texts = [
        element("text", cell, x=x, y=top + ROW * number, class_=None if number else "dim")
        for number, row in enumerate((table.head, *table.rows))
        for x, cell in zip(starts, row, strict=True)
    ]
    return texts, end
