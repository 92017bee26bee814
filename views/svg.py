"""SVG and HTML from Python: elements whose texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from rankslice.framework.wording import harmless

Value = str | float | None


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
        element("text", title, x=20, y=28, class_="title"),
        element("text", subtitle, x=20, y=54, class_="dim"),
    )
