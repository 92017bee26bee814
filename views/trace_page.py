"""A trace as a page: what limits, the timeline, and what each rank did with its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rankslice.backend.runtime.sources.switching import ROUTE_NAMES
from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.files.templates import render_markup, template_text
from rankslice.framework.wording import bare, digits, percent_text
from rankslice.measurement.trace.journeys import Reason, Stretch
from rankslice.measurement.trace.path import Part
from rankslice.measurement.trace.trace_findings import Findings, part_name
from rankslice.views.content import Figure, Html, Notice, Page, Section, Table
from rankslice.views.page import data_block, page_html
from rankslice.views.trace_timeline import OPERATOR, Timeline

_HINT = (
    "Point at a slice, or tap it, to see what it is. Drag to move, turn the wheel or pinch to zoom."
)
_MIN_SHARE = 0.005
"""Of the critical path, that is worth a row."""
_PERIODS = 12
"""Of frames that come out, which are shown at first."""


def trace_page(
    findings: Findings,
    drawn: Timeline,
    sentences: Sequence[str],
    notes: Sequence[str] = (),
    *,
    shows_end: bool = False,
    boards: Sequence[Figure] = (),
) -> str:
    """Return a trace as an HTML document that needs nothing beside it.

    ``sentences`` are about the trace, the most important first; ``notes`` say what is missing, or
    how exact it is. ``shows_end``: at first the end is shown, not the begin of the steady state.
    """
    plan, span = findings.journeys.plan, findings.span
    operators = any(track.kind == OPERATOR for track in drawn.tracks)
    block = data_block("trace", _data(findings, drawn, shows_end=shows_end))
    markup = render_markup(
        "trace_timeline.html.j2",
        tracks=len(drawn.tracks),
        slices=len(drawn.slices),
        hint=_HINT,
        has_operators=operators,
    )
    texts = (template_text(f"trace_timeline.{kind}") for kind in ("js", "css"))
    timeline = Html(block + markup, *texts)
    notice = Notice("Bottleneck", tuple(sentences))
    missing = Notice("Notes", tuple(notes), "note")
    path_head = ("on the critical path", "of the time", "ms per frame")
    rows = tuple(_path_rows(findings))
    path = Table("where the time between two results goes", path_head, rows)
    period = f"one every {digits(span.period_ms)} ms"
    came = f" in which the last {frames_text(span.frames)} came out, {period}"
    page = Page(
        f"Where the time goes in {bare(plan.model.name)}",
        f"{frames_text(findings.journeys.frames)}; the shares are of"
        f" {digits((span.end_ns - span.begin_ns) / 1e9)} s{came if span.frames else ''}",
        (
            Section("", parts=(notice, missing, timeline)),
            ranks_section(findings),
            Section(
                "Critical path",
                ("The steps and waits that determine the rate, from the last result back.",),
                (path,),
            ),
            *([Section("Boards", ("One sample a second.",), tuple(boards))] if boards else []),
        ),
    )
    return page_html(page)


def drawing_notes(drawn: Timeline, stretch: Stretch | None, which: str) -> Iterator[str]:
    """Yield what is not drawn; ``which``: of the series of frames on one route, this one."""
    if drawn.left_out:
        yield f"{drawn.left_out} slices before the last {len(drawn.slices)} are not drawn"
    if stretch is not None:
        yield (
            f"this shows frames {stretch.begin} to {stretch.end - 1}, {which} on the"
            f" {ROUTE_NAMES[stretch.route]} route"
        )


def ranks_section(findings: Findings) -> Section:
    head = ("rank", "accelerator", "compute", "I/O", "input", "room", "frames", "rest", "send")
    table = Table("what each rank did with its time", head, tuple(_rank_rows(findings)))
    text = (
        "The columns are shares of the time: computing; reading frames and writing results; waiting"
        " for a tensor, for room, for frames from the source; the rest. Sending overlaps these."
    )
    return Section("Ranks", (text,), (table,))


def _rank_rows(findings: Findings) -> Iterator[tuple[str, ...]]:
    inputs = findings.journeys.plan.inputs
    for use, rank in zip(findings.ranks, findings.journeys.plan.ranks, strict=True):
        from_source = sum(
            wait.share
            for wait in use.waits
            if wait.reason is Reason.frame
            or (wait.reason is Reason.input and wait.tensor in inputs)
        )
        shares = (
            use.compute,
            use.ends,
            use.waits_for(Reason.input, Reason.frame) - from_source,
            use.waits_for(Reason.room, Reason.window),
            from_source,
            use.rest,
            use.send,
        )
        yield str(use.rank), rank.key, *(percent_text(max(0, s)) for s in shares)


def _path_rows(findings: Findings) -> Iterator[tuple[str, ...]]:
    parts: list[tuple[Part, float]] = sorted(findings.path.shares.items(), key=lambda one: -one[1])
    for part, share in parts:
        if share >= _MIN_SHARE:
            name = part_name(findings.journeys.plan, part)
            yield name, percent_text(share), digits(share * findings.span.period_ms)


def _data(findings: Findings, drawn: Timeline, *, shows_end: bool) -> dict[str, Any]:
    """Return the data of the script: times in microseconds, slices in columns."""
    slices, span = drawn.slices, findings.span
    begin = min((one.begin_ns for one in slices), default=span.begin_ns)
    end = max((one.end_ns for one in slices), default=span.end_ns)
    boards = [rank.board for rank in findings.journeys.plan.ranks]
    names = list(dict.fromkeys(one.name for one in slices))
    kinds = list(dict.fromkeys(one.kind for one in slices))
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
        "track": [one.track for one in slices],
        "begins": [_microseconds(one.begin_ns - begin) for one in slices],
        "lengths": [_microseconds(one.end_ns - one.begin_ns) for one in slices],
        "name": [name_of[one.name] for one in slices],
        "kind": [kinds.index(one.kind) for one in slices],
        "frame": [one.frame for one in slices],
        "critical": [int(one.is_critical) for one in slices],
    }


def _microseconds(ns: int) -> float:
    return round(ns / 1e3, 1)
