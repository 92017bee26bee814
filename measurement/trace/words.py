"""What limits a job, in words, and what its ranks wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from rankslice.backend.runtime.figures.events import COMPUTE
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.job import ALL
from rankslice.framework.plan import Plan
from rankslice.framework.wording import digits, joined, quoted
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.trace.journeys import NEVER, Journeys, Why
from rankslice.measurement.trace.path import CriticalPath, Part, Span, What, critical_path
from rankslice.measurement.trace.waits import RankUse, Wait, uses

_MOST = 0.5
"""Share of the critical path from which one thing limits."""
_ALONE = 0.85
"""Share from which it does so even if frames wait for older ones to come out."""
_ROUNDS = 0.7
"""Of all rounds that a full window allows: the window limits from here on."""
_BUSY = 0.9
"""Share of the time from which a rank that computes limits whatever the window."""
_OVERLAPS = 0.4
"""Share of a rank's computing in which another rank of its core computes, too."""
_ON_THE_CORE = 0.1
"""Processor time over time in the engine from which a rank computes on its core itself."""
_WORTH_TELLING = 0.1
"""Share of the time from which a wait is told."""


class Kind(str, Enum):
    """What limits a job."""

    rank = "rank"
    core = "core"
    link = "link"
    window = "window"
    source = "source"
    sink = "sink"
    waking = "waking"
    nothing = "nothing"
    """Several things in equal parts."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What limits the rate."""

    kind: Kind
    text: str
    """A sentence without its full stop."""
    share: float
    """Of the critical path, from 0 to 1."""
    ranks: tuple[int, ...] = ()
    """Those that compute; of a link, sender and receiver."""
    channels: tuple[int, ...] = ()
    """Of a link."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a trace shows."""

    journeys: Journeys
    span: Span
    """The time that the shares are of."""
    path: CriticalPath
    ranks: tuple[RankUse, ...]
    limit: Limit
    waits: tuple[str, ...] = field(default=())
    """A clause for each long wait."""


def findings(journeys: Journeys, span: Span, summary: RunSummary | None = None) -> Findings:
    """Return what limits a job and what its ranks wait for.

    Args:
        journeys: of its frames.
        span: the time to look at.
        summary: figures of the run; without them nobody knows how much processor time ranks took.
    """
    path = critical_path(journeys, span)
    ranks = uses(journeys, span)
    limit = _limit(journeys, span, path, ranks, summary)
    return Findings(journeys, span, path, ranks, limit, tuple(_waits(journeys.plan, ranks)))


def _limit(
    found: Journeys,
    span: Span,
    path: CriticalPath,
    ranks: Sequence[RankUse],
    summary: RunSummary | None,
) -> Limit:
    plan = found.plan
    groups: dict[tuple[object, ...], list[Part]] = defaultdict(list)
    for part in path.shares:
        groups[_group(plan, part)].append(part)
    most = max(groups.values(), key=lambda parts: _sum(path, parts), default=[])
    share = _sum(path, most)
    rounds = path.rounds * found.window / max(1, span.frames)
    by_window = rounds >= _ROUNDS
    if not most:
        return Limit(Kind.nothing, "too few frames came out to determine the bottleneck", 0.0)
    part = most[0]
    if part.what is What.link and share >= _MOST:
        return _link(plan, span, most, share, by_window=by_window)
    busy = [use.rank for use in ranks if use.compute >= _BUSY]
    told = summary.ranks if summary is not None else ()
    for rank in {*busy, *([part.rank] if part.what is What.rank else [])} if told else ():
        if (core := _shared_core(found, span, rank, ranks, told)) is not None:
            return core
    if busy:
        return _busy_ranks(plan, busy, share, ranks)
    if by_window and share < _ALONE and part.what is not What.arrivals:
        return Limit(
            Kind.window,
            f"the window is the bottleneck: of {found.window} frame{'s' * (found.window != 1)}"
            " inside, the oldest has to come out before the next one enters; a larger --window"
            " would let the ranks work at the same time",
            share,
        )
    if share < _MOST:
        return _nothing(plan, path)
    return _named(plan, span, part, share, ranks)


def _group(plan: Plan, part: Part) -> tuple[object, ...]:
    """Return what counts as one thing that can limit: the messages between two boards do."""
    if part.what is What.link:
        channel = next(each for each in plan.channels if each.number == part.channel)
        return part.what, plan.ranks[channel.source].board, plan.ranks[channel.destination].board
    if part.what is What.waking:
        return (part.what,)
    return part.what, part.rank


def _sum(path: CriticalPath, parts: Sequence[Part]) -> float:
    return sum(path.shares[part] for part in parts)


def _named(plan: Plan, span: Span, part: Part, share: float, ranks: Sequence[RankUse]) -> Limit:
    """Return a limit that is one thing alone."""
    period = f"{digits(span.period_ms)} ms per frame"
    of = f"{digits(share * span.period_ms)} of the {period}"
    if part.what is What.rank:
        return _busy_ranks(plan, [part.rank], share, ranks)
    if part.what is What.arrivals:
        return Limit(
            Kind.source,
            f"the source is the bottleneck: the next frame has not arrived for {of}",
            share,
        )
    if part.what is What.read:
        text = f"the source is the bottleneck: reading frames takes {of}"
        return Limit(Kind.source, text, share, (part.rank,))
    if part.what is What.write:
        return Limit(
            Kind.sink,
            f"the sink is the bottleneck: processing results takes {of}",
            share,
            (part.rank,),
        )
    text = f"wake-ups are the bottleneck: waking the next thread takes {of}"
    return Limit(Kind.waking, text, share)


def _busy_ranks(plan: Plan, busy: Sequence[int], share: float, ranks: Sequence[RankUse]) -> Limit:
    if len(busy) == 1:
        (rank,) = busy
        use, takes_all = ranks[rank], plan.ranks[rank].turns == ALL
        fewer = "fewer layers" if takes_all else "fewer layers or frames"
        advice = f"; {fewer} there would make it faster" if len(plan.ranks) > 1 else ""
        text = (
            f"{_name(plan, rank)} is the bottleneck: it computes for {digits(use.compute_ms)} ms"
            f" per frame, {_percent(use.compute)} of the time{advice}"
        )
    else:
        times = ", ".join(digits(ranks[rank].compute_ms) for rank in busy)
        text = (
            f"ranks {joined([str(rank) for rank in busy])} are equally slow: they compute for"
            f" {times} ms per frame, nearly all the time"
        )
    return Limit(Kind.rank, text, share, tuple(busy))


def _link(plan: Plan, span: Span, parts: Sequence[Part], share: float, *, by_window: bool) -> Limit:
    channels = [each for part in parts for each in plan.channels if each.number == part.channel]
    source, destination = channels[0].source, channels[0].destination
    boards = plan.ranks[source].board, plan.ranks[destination].board
    if boards[0] == boards[1]:
        where = f"messages within {boards[0]} are the bottleneck"
    else:
        where = f"the link from {boards[0]} to {boards[1]} is the bottleneck"
    tensors = joined([quoted(name) for name in dict.fromkeys(each.tensor for each in channels)])
    text = (
        f"{where}: {tensors} {'is' if len(channels) == 1 else 'are'} in transit for"
        f" {digits(share * span.period_ms)} of the {digits(span.period_ms)} ms per frame"
    )
    if by_window:
        text += "; a larger --window would hide a part of that"
    numbers = tuple(sorted(each.number for each in channels))
    return Limit(Kind.link, text, share, (source, destination), numbers)


def _shared_core(
    found: Journeys,
    span: Span,
    rank: int,
    ranks: Sequence[RankUse],
    summaries: Sequence[RankFigures],
) -> Limit | None:
    """Return the core that a rank shares with others which compute at the same time."""
    plan = found.plan
    mine = plan.ranks[rank]
    if not _computes_on_its_core(summaries[rank]):
        return None
    beside = [
        other.rank
        for other in plan.ranks
        if other.rank != rank
        and other.board == mine.board
        and {*other.cores} & {*mine.cores}
        and _computes_on_its_core(summaries[other.rank])
    ]
    overlaps = {other: _overlap(found, span, rank, other) for other in beside}
    crowd = sorted(other for other, overlap in overlaps.items() if overlap >= _OVERLAPS)
    if not crowd:
        return None
    core = min({*plan.ranks[crowd[0]].cores} & {*mine.cores})
    members = sorted([rank, *crowd])
    text = (
        f"core {core} of {mine.board} is the bottleneck: ranks"
        f" {joined([str(each) for each in members])} share it, and compete for it"
        f" {_percent(max(overlaps.values()) * ranks[rank].compute)} of the time;"
        " give each its own core"
    )
    return Limit(Kind.core, text, max(overlaps.values()), tuple(members))


def _computes_on_its_core(rank: RankFigures) -> bool:
    """Return whether a rank's own processor computes, and does not only wait for another one."""
    return rank.cpu_ms >= _ON_THE_CORE * rank.compute_ms["mean"] > 0


def _overlap(found: Journeys, span: Span, rank: int, other: int) -> float:
    """Return in which part of a rank's computing another one computes, too, from 0 to 1."""
    begins, ends = _computing(found, span, rank)
    their_begins, their_ends = _computing(found, span, other)
    if not len(begins) or not len(their_begins):
        return 0.0
    edges = np.stack([their_begins, their_ends], axis=1).reshape(-1).astype(np.float64)
    lengths = their_ends - their_begins
    before = np.concatenate([[0], np.cumsum(lengths)])
    done = np.stack([before[:-1], before[1:]], axis=1).reshape(-1).astype(np.float64)
    both = np.interp(ends, edges, done) - np.interp(begins, edges, done)
    return float(both.sum() / max(1, (ends - begins).sum()))


def _computing(found: Journeys, span: Span, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return begins and ends of a rank's steps within a span, in their order."""
    rows = [at for at, row in enumerate(found.rows) if (row.kind, row.rank) == (COMPUTE, rank)]
    begins, ends = found.begins[rows], found.ends[rows]
    inside = (ends > span.begin_ns) & (begins < span.end_ns) & (ends > NEVER)
    order = np.argsort(begins[inside], kind="stable")
    return begins[inside][order], ends[inside][order]


def _nothing(plan: Plan, path: CriticalPath) -> Limit:
    """Return what there is to say if nothing takes most of the critical path."""
    by_part = sorted(path.shares.items(), key=lambda item: -item[1])[:3]
    told = joined([f"{part_name(plan, part)} ({_percent(share)})" for part, share in by_part])
    text = f"there is no single bottleneck: the critical path is mostly {told}"
    return Limit(Kind.nothing, text, by_part[0][1])


def part_name(plan: Plan, part: Part) -> str:
    """Return what a part of the critical path is."""
    if part.what is What.link:
        channel = next(each for each in plan.channels if each.number == part.channel)
        return f"{quoted(channel.tensor)} in transit to rank {channel.destination}"
    return {
        What.rank: f"computing on rank {part.rank}",
        What.read: "reading frames",
        What.write: "processing results",
        What.arrivals: "waiting for frames to arrive",
        What.waking: f"waking rank {part.rank}",
    }[part.what]


def _waits(plan: Plan, ranks: Sequence[RankUse]) -> Iterator[str]:
    """Yield what each rank waits for most, if that is long."""
    for use in ranks:
        for longest in use.waits[:1]:
            alike = [w for w in use.waits if (w.why, w.rank) == (longest.why, longest.rank)]
            share = sum(wait.share for wait in alike)
            on_the_way = sum(wait.on_the_way for wait in alike)
            if share >= _WORTH_TELLING:
                wait = replace(longest, share=share, on_the_way=on_the_way)
                yield f"rank {use.rank} waits {_percent(share)} of the time {_what(plan, wait)}"


def _what(plan: Plan, wait: Wait) -> str:
    """Return what a wait is for: ``for rank 0's tensor 'conv4'``."""
    if wait.why is Why.frame:
        return "for frames to arrive"
    if wait.why is Why.window:
        return "for older frames to finish: the window is full"
    if wait.why is Why.room:
        return f"for room: rank {wait.rank} still reads older frames of {quoted(wait.tensor)}"
    if wait.tensor in plan.inputs:
        return "for frames from the source"
    text = f"for rank {wait.rank}'s tensor {quoted(wait.tensor)}"
    if wait.channel == NEVER:
        return text
    return f"{text}, {_percent(wait.on_the_way)} while it is in transit"


def _name(plan: Plan, rank: int) -> str:
    return f"rank {rank} ({plan.ranks[rank].key})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
