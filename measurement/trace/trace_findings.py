"""What limits a job, and what its ranks wait for, as a trace shows it; in words and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankslice.backend.runtime.figures.events import COMPUTE, READ, RECEIVE, SEND, WRITE
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.summary.bottleneck import (
    COMPUTES,
    READS,
    WRITES,
    Load,
    busiest,
    core_load,
    fewer_layers,
    rank_name,
)
from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.plan import Plan
from rankslice.framework.wording import joined, percent_text, quoted
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.trace.journeys import NEVER, Journeys, Reason, channel_of
from rankslice.measurement.trace.path import (
    Activity,
    CriticalPath,
    Part,
    RankUse,
    Span,
    Wait,
    busy_share,
    critical_path,
    uses,
)

_MAIN_SHARE = 0.5
"""Share of the critical path from which one thing limits."""
_ALONE = 0.85
"""Share from which it does so even if frames wait for older ones to come out."""
_ROUNDS = 0.7
"""Of all rounds that a full window allows: the window limits from here on."""
_BUSY = 0.9
"""Share of the time from which a rank that computes limits whatever the window."""
_ON_THE_CORE = 0.1
"""Processor time over time in the engine from which a rank computes on its core itself."""
_MIN_SHARE = 0.1
"""Share of the time from which a wait is reported."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a trace shows."""

    journeys: Journeys
    span: Span
    """The time that the shares are of."""
    path: CriticalPath
    ranks: tuple[RankUse, ...]
    limit: Load
    """Of kind ``rank``, ``core``, ``link``, ``window``, ``source``, ``sink``, ``waking``, or
    ``nothing`` if several things limit in equal parts."""
    limit_share: float
    """Its share of the critical path, from 0 to 1; of a core, that in which it is busy."""
    channels: tuple[int, ...] = ()
    """Of a link that limits."""
    waits: tuple[str, ...] = ()
    """A clause for each long wait."""

    @property
    def bottleneck(self) -> str:
        """What limits, as a sentence without its full stop."""
        return self.limit.text(self.span.period_ms)


def findings(journeys: Journeys, span: Span, summary: RunSummary | None = None) -> Findings:
    """Find what limits a job and what its ranks wait for.

    Without the figures of the run nobody knows how much processor time ranks took.
    """
    path = critical_path(journeys, span)
    ranks = uses(journeys, span)
    plan = journeys.plan
    groups: dict[tuple[object, ...], list[Part]] = defaultdict(list)
    for part in path.shares:
        groups[_group(plan, part)].append(part)
    most = max(groups.values(), key=lambda parts: _sum(path, parts), default=[])
    limit = _limit(journeys, span, path, most, ranks, summary.ranks if summary else ())
    is_link = limit.kind == "link"
    return Findings(
        journeys,
        span,
        path,
        ranks,
        limit,
        limit.share if limit.kind == "core" else _sum(path, most),
        tuple(sorted(part.channel for part in most)) if is_link else (),
        tuple(_waits(plan, ranks)),
    )


def _limit(
    journeys: Journeys,
    span: Span,
    path: CriticalPath,
    most: Sequence[Part],
    ranks: Sequence[RankUse],
    figures: Sequence[RankFigures],
) -> Load:
    plan, share = journeys.plan, _sum(path, most)
    if not most:
        text = "too few frames came out to determine the bottleneck"
        return Load(kind="nothing", name=text, share=0.0)
    by_window = path.rounds * journeys.window / max(1, span.frames) >= _ROUNDS
    part = most[0]
    if part.activity is Activity.link and share >= _MAIN_SHARE:
        return _link(plan, most, share, by_window=by_window)
    loads = {use.rank: _rank_load(plan, use) for use in ranks}
    load = busiest([*_shared_cores(journeys, span, loads, figures), *loads.values()])
    if load.kind == "core":
        return load
    busy = [rank for rank in loads if loads[rank].share >= _BUSY]
    if len(busy) > 1:
        name = f"ranks {joined([str(rank) for rank in busy])}"
        return replace(load, name=name, ranks=tuple(busy), would_help=())
    if busy:
        return load
    if by_window and share < _ALONE and part.activity is not Activity.arrivals:
        text = (
            f"the window: of {frames_text(journeys.window)} inside, the oldest has to come out"
            " before the next one enters; a larger --window would let the ranks work at the same"
            " time"
        )
        return Load(kind="window", name=text, share=share)
    if share < _MAIN_SHARE:
        by_part = sorted(path.shares.items(), key=lambda item: -item[1])[:3]
        parts = joined(
            [f"{part_name(plan, part)} ({percent_text(share)})" for part, share in by_part]
        )
        name = f"nothing alone: the critical path is mostly {parts}"
        return Load(kind="nothing", name=name, share=by_part[0][1])
    if part.activity is Activity.rank:
        return loads[part.rank]
    kind, name, phrase = {
        Activity.arrivals: ("source", "the source", "no frame has come for"),
        Activity.read: ("source", "the source", "reading frames takes"),
        Activity.write: ("sink", "the sink", "writing results takes"),
        Activity.waking: ("waking", "wake-ups", "waking the next thread takes"),
    }[part.activity]
    is_rank = part.activity in (Activity.read, Activity.write)
    who = (part.rank,) if is_rank else ()
    return Load(kind=kind, name=name, share=share, phrase=phrase, ranks=who)


def _rank_load(plan: Plan, use: RankUse) -> Load:
    rank = plan.ranks[use.rank]
    parts = {COMPUTES: use.compute, (READS if use.rank == plan.job.source else WRITES): use.ends}
    return Load(
        kind="rank",
        name=rank_name(rank.rank, rank.key, rank.turns),
        share=use.compute + use.ends,
        parts={name: share for name, share in parts.items() if share >= _MIN_SHARE},
        ranks=(use.rank,),
        on_core=use.compute + use.ends,
        would_help=fewer_layers(len(plan.ranks), rank.turns),
    )


def _shared_cores(
    journeys: Journeys, span: Span, loads: Mapping[int, Load], figures: Sequence[RankFigures]
) -> Iterator[Load]:
    """Yield the cores that several ranks have, and these ranks with their part of it.

    Ranks that compute at the same time have equal parts.
    """
    users: dict[tuple[str, int], list[int]] = defaultdict(list)
    for rank in journeys.plan.ranks:
        for core in rank.cores:
            if figures and _computes_on_its_core(figures[rank.rank]):
                users[rank.board, core].append(rank.rank)
    for (board, core), ranks in users.items():
        if len(ranks) > 1:
            share = busy_share(journeys, span, ranks)
            load = core_load(board, core, ranks, share)
            yield replace(load, would_help=("a core of its own for each",))
            part = share / max(share, sum(loads[rank].share for rank in ranks))
            yield from (replace(loads[rank], on_core=part * loads[rank].share) for rank in ranks)


def _computes_on_its_core(rank: RankFigures) -> bool:
    """Return whether a rank's own processor computes, and does not only wait for another one."""
    return rank.cpu_ms >= _ON_THE_CORE * rank.compute_ms["mean"] > 0


def _group(plan: Plan, part: Part) -> tuple[object, ...]:
    """Return what counts as one thing that can limit: the messages between two boards do."""
    if part.activity is Activity.link:
        channel = channel_of(plan, part.channel)
        ends = (channel.source, channel.destination)
        return part.activity, *(plan.ranks[end].board for end in ends)
    if part.activity is Activity.waking:
        return (part.activity,)
    return part.activity, part.rank


def _sum(path: CriticalPath, parts: Sequence[Part]) -> float:
    return sum(path.shares[part] for part in parts)


def _link(plan: Plan, parts: Sequence[Part], share: float, *, by_window: bool) -> Load:
    channels = [channel_of(plan, part.channel) for part in parts]
    source, destination = channels[0].source, channels[0].destination
    boards = plan.ranks[source].board, plan.ranks[destination].board
    tensors = joined(
        [quoted(name) for name in dict.fromkeys(channel.tensor for channel in channels)]
    )
    link = f"the link from {boards[0]} to {boards[1]}"
    return Load(
        kind="link",
        name=f"messages within {boards[0]}" if boards[0] == boards[1] else link,
        share=share,
        phrase=f"{tensors} {'is' if len(channels) == 1 else 'are'} in transit for",
        ranks=(source, destination),
        would_help=("a larger --window, which hides a part of that,",) if by_window else (),
    )


def part_name(plan: Plan, part: Part) -> str:
    if part.activity is Activity.link:
        channel = channel_of(plan, part.channel)
        return f"{quoted(channel.tensor)} in transit to rank {channel.destination}"
    return {
        Activity.rank: f"computing on rank {part.rank}",
        Activity.read: "reading frames",
        Activity.write: "writing results",
        Activity.arrivals: "waiting for frames to arrive",
        Activity.waking: f"waking rank {part.rank}",
    }[part.activity]


def _waits(plan: Plan, ranks: Sequence[RankUse]) -> Iterator[str]:
    for use in ranks:
        for longest in use.waits[:1]:
            alike = [w for w in use.waits if (w.reason, w.rank) == (longest.reason, longest.rank)]
            share = sum(wait.share for wait in alike)
            on_the_way = sum(wait.on_the_way for wait in alike)
            if share >= _MIN_SHARE:
                wait = replace(longest, share=share, on_the_way=on_the_way)
                text = _wait_text(plan, wait)
                yield f"rank {use.rank} waits {percent_text(share)} of the time {text}"


def _wait_text(plan: Plan, wait: Wait) -> str:
    if wait.reason is Reason.frame:
        return "for frames to arrive"
    if wait.reason is Reason.window:
        return "for older frames to finish: the window is full"
    if wait.reason is Reason.room:
        return f"for room: rank {wait.rank} still reads older frames of {quoted(wait.tensor)}"
    if wait.tensor in plan.inputs:
        return "for frames from the source"
    text = f"for rank {wait.rank}'s tensor {quoted(wait.tensor)}"
    if wait.channel == NEVER:
        return text
    return f"{text}, {percent_text(wait.on_the_way)} while it is in transit"


_KINDS = {COMPUTE: "segment", READ: "read", WRITE: "write", SEND: "send", RECEIVE: "receive"}


def journeys_json(
    findings: Findings, words: Sequence[str], notes: Sequence[str], summary: RunSummary | None
) -> dict[str, Any]:
    """Return a trace as plain values, for ``trace --json``; times are in milliseconds."""
    limit, span = findings.limit, findings.span
    return {
        "words": list(words),
        "notes": list(notes),
        "limit": {
            "kind": limit.kind,
            "share": findings.limit_share,
            "ranks": list(limit.ranks),
            "channels": list(findings.channels),
        },
        "period_ms": span.period_ms,
        "clock_error_us": [
            None if not np.isfinite(error) else error / 1e3
            for error in findings.journeys.trace.error_ns
        ],
        "critical_path": [
            {
                "what": part.activity.value,
                "rank": part.rank if part.rank != NEVER else None,
                "channel": part.channel if part.channel != NEVER else None,
                "share": share,
            }
            for part, share in sorted(findings.path.shares.items(), key=lambda item: -item[1])
        ],
        "ranks": [
            {
                "rank": use.rank,
                "compute": use.compute,
                "compute_ms": use.compute_ms,
                "read_and_write": use.ends,
                "send": use.send,
                "rest": use.rest,
                "waits": [
                    {
                        "for": wait.reason.value,
                        "share": wait.share,
                        "tensor": wait.tensor or None,
                        "rank": wait.rank if wait.rank != NEVER else None,
                        "channel": wait.channel if wait.channel != NEVER else None,
                        "on_the_way": wait.on_the_way,
                    }
                    for wait in use.waits
                ],
            }
            for use in findings.ranks
        ],
        "run": summary.to_json() if summary is not None else None,
        "frames": [_frame(findings.journeys, place) for place in range(findings.journeys.frames)],
    }


def _frame(journeys: Journeys, place: int) -> dict[str, Any]:
    """Return the journey of a frame; its times count from its arrival, or its first step."""
    rows = [row for row in range(len(journeys.rows)) if journeys.ends[row, place] > NEVER]
    begins = [int(journeys.begins[row, place]) for row in rows]
    arrived = int(journeys.arrived[place])
    zero = arrived if arrived > NEVER else min(begins, default=0)

    def since(time_ns: int) -> float | None:
        return (time_ns - zero) / 1e6 if time_ns > NEVER else None

    return {
        "frame": journeys.first + place,
        "out_ms": since(int(journeys.out[place])),
        "steps": [
            {
                "what": _KINDS[journeys.rows[row].kind],
                "rank": journeys.rows[row].rank,
                "number": journeys.rows[row].number,
                "begin_ms": since(int(journeys.begins[row, place])),
                "end_ms": since(int(journeys.ends[row, place])),
                "after": _after(journeys, row, place),
            }
            for row in sorted(rows, key=lambda row: int(journeys.begins[row, place]))
        ],
    }


def _after(journeys: Journeys, row: int, place: int) -> str | None:
    last = max(journeys.causes[row], key=lambda cause: int(cause.times[place]))
    return last.reason.value if last.times[place] > NEVER else None
