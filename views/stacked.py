"""Several charts as one, where they have the same horizontal axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_HEAD = re.compile(r'<svg viewBox="0 0 (\d+(?:\.\d+)?) (\d+(?:\.\d+)?)"[^>]*>')
_GAP = 14.0
"""Pixels between two charts."""


def stacked_charts(charts: Sequence[str], label: str) -> str:
    """Return charts of ``charts.py`` below each other, as one picture."""
    heads = [head for head in map(_HEAD.match, charts) if head]
    parts, top = [], 0.0
    for chart, head in zip(charts, heads, strict=True):
        inside = chart[head.end() : chart.rindex("</svg>")]
        parts.append(f'<g transform="translate(0 {top:g})">{inside}</g>')
        top += float(head[2]) + _GAP
    width, height = max(float(head[1]) for head in heads), top - _GAP
    opening = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
    return f"{opening}{''.join(parts)}</svg>"
