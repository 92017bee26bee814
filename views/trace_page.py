"""A trace as a page: what limits, the timeline, and what each rank did with its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.framework.files.templates import render_markup, template_text
from rankslice.framework.wording import bare, digits
from rankslice.measurement.trace.path import Span
from rankslice.measurement.trace.words import Findings
from rankslice.views.content import Figure, Html, Notice, Page, Section, Table
from rankslice.views.page import data_block, page_html
from rankslice.views.trace_tables import (
    PATH_HEAD,
    RANK_CAPTION,
    RANK_HEAD,
    path_rows,
    rank_rows,
)
from rankslice.views.trace_timeline import OPERATOR, Timeline

_HINT = (
    "Point at a slice, or tap it, to see what it is. Drag to move, turn the wheel or pinch to zoom."
)
_PERIODS = 12
"""Of frames that come out, which are shown at first."""


def trace_page(
    found: Findings,
    drawn: Timeline,
    told: Sequence[str],
    notes: Sequence[str] = (),
    *,
    shows_end: bool = False,
    boards: Sequence[Figure] = (),
) -> str:
    """Return a trace as an HTML document that needs nothing beside it.

    Args:
        found: what the trace shows.
        drawn: its slices.
        told: sentences about it, the most important first.
        notes: what is missing, or how exact it is.
        shows_end: at first the end is shown, and not the begin of the steady state.
        boards: what they were like meanwhile.
    """
    plan, span = found.journeys.plan, found.span
    operators = any(track.kind == OPERATOR for track in drawn.tracks)
    block = data_block("trace", _data(found, drawn, shows_end=shows_end))
    markup = render_markup(
        "trace_timeline.html.j2",
        tracks=len(drawn.tracks),
        slices=len(drawn.slices),
        hint=_HINT,
        has_operators=operators,
    )
    timeline = Html(
        block + markup, template_text("trace_timeline.js"), template_text("trace_timeline.css")
    )
    notice = Notice("Bottleneck", tuple(told))
    missing = Notice("Notes", tuple(notes), "note")
    ranks = Table("what each rank did with its time", RANK_HEAD, tuple(rank_rows(found)))
    path = Table("where the time between two results goes", PATH_HEAD, tuple(path_rows(found)))
    page = Page(
        f"Where the time goes in {bare(plan.model.name)}",
        f"{frames_text(found.journeys.frames)}; the shares are of"
        f" {digits((span.end_ns - span.begin_ns) / 1e9)} s{_results_of(span)}",
        (
            Section("", parts=(notice, missing, timeline)),
            Section("Ranks", (f"The columns are {RANK_CAPTION}.",), (ranks,)),
            Section(
                "Critical path",
                ("The steps and waits that determine the rate, from the last result back.",),
                (path,),
            ),
            *([Section("Boards", ("One sample a second.",), tuple(boards))] if boards else []),
        ),
    )
    return page_html(page)


def _results_of(span: Span) -> str:
    if not span.frames:
        return ""
    came = f"{frames_text(span.frames)} came out"
    return f" in which the last {came}, one every {digits(span.period_ms)} ms"


def _data(found: Findings, drawn: Timeline, *, shows_end: bool) -> dict[str, Any]:
    """Return what the script draws: times in microseconds, slices in columns."""
    slices, span = drawn.slices, found.span
    begin = min((each.begin_ns for each in slices), default=span.begin_ns)
    end = max((each.end_ns for each in slices), default=span.end_ns)
    boards = [rank.board for rank in found.journeys.plan.ranks]
    names = list(dict.fromkeys(each.name for each in slices))
    kinds = list(dict.fromkeys(each.kind for each in slices))
    name_of = {name: number for number, name in enumerate(names)}
    shown = round(_PERIODS * span.period_ms * 1e6)
    first = max(begin, end - shown) if shows_end else max(span.begin_ns, begin)
    last = min(end, first + shown)
    known = list(dict.fromkeys(boards))
    return {
        "begin": 0,
        "end": _microseconds(end - begin),
        "view": [_microseconds(first - begin), _microseconds(max(last, first + 1000) - begin)],
        "boards": [bare(board) for board in known],
        "tracks": [
            {
                "rank": track.rank,
                "name": f"rank {track.rank} {track.name}",
                "board": known.index(boards[track.rank]),
            }
            for track in drawn.tracks
        ],
        "names": names,
        "kinds": kinds,
        "track": [each.track for each in slices],
        "begins": [_microseconds(each.begin_ns - begin) for each in slices],
        "lengths": [_microseconds(each.end_ns - each.begin_ns) for each in slices],
        "name": [name_of[each.name] for each in slices],
        "kind": [kinds.index(each.kind) for each in slices],
        "frame": [each.frame for each in slices],
        "critical": [int(each.is_critical) for each in slices],
    }


def _microseconds(ns: int) -> float:
    return round(ns / 1e3, 1)
