"""The report that a job's sink writes, read strictly: it may come from another machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.runtime.figures.rank_figures import RankFigures, SourceFigures, ends_of
from rankslice.backend.runtime.summary.rates import NORMAL, SURGE
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.plan import Plan
from rankslice.framework.reading.records import read_record
from rankslice.framework.reading.untrusted_json import from_other_machine

MAX_REPORT_BYTES = 64 << 20

_SHAPE = "expected the report of a run of this build folder; run it again"


@dataclass(frozen=True, slots=True)
class _Report:
    ranks: tuple[RankFigures, ...]


def read_report(path: Path, plan: Plan, completed: int) -> tuple[RankFigures, ...]:
    """Read the figures of a job's ranks from its report.

    Raises:
        RankSliceError: the file cannot be read, or is no report of a run of this plan.
    """
    place = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_REPORT_BYTES)
    except OSError as error:
        raise RankSliceError(Mistake(place, f"cannot be read: {error.strerror}")) from None
    record = from_other_machine(content, place, _SHAPE)
    ranks = read_record(_Report, record, place).ranks
    raise_mistakes(Mistake(place, text, _SHAPE) for text in _contradictions(ranks, plan))
    source, sink = ends_of(ranks)
    if completed + sink.failed > source.frames:
        found = f"{source.frames} frames entered, and {completed + sink.failed} came out"
        raise RankSliceError(Mistake(place, found, _SHAPE))
    return ranks


def _contradictions(ranks: tuple[RankFigures, ...], plan: Plan) -> Iterator[str]:
    if len(ranks) != len(plan.ranks):
        yield f"has {len(ranks)} ranks, and the plan {len(plan.ranks)}"
        return
    for number, (rank, planned) in enumerate(zip(ranks, plan.ranks, strict=True)):
        if (rank.rank, rank.key) != (number, planned.key):
            yield f"ranks[{number}] is rank {rank.rank} ({rank.key})"
        if (rank.surge is None) != (plan.surge is None):
            yield f"ranks[{number}] was {'not ' * (rank.surge is None)}on the route for a surge"
        routes = (rank, rank.surge) if rank.surge is not None else (rank,)
        for figures, route in zip(routes, plan.routes, strict=False):
            if figures.turns != route.ranks[number].turns:
                yield f"ranks[{number}] takes different turns than in the plan"
        for name, owner in (("source", plan.job.source), ("sink", plan.job.sink)):
            if (getattr(rank, name) is not None) != (number == owner):
                yield f"ranks[{number}] is {'not ' if number == owner else ''}the {name}"
        if rank.source is not None:
            yield from _source_contradictions(rank.source, plan, f"ranks[{number}].source")


def _source_contradictions(source: SourceFigures, plan: Plan, where: str) -> Iterator[str]:
    if sorted(set(source.dropped)) != [*source.dropped]:
        yield f"{where}.dropped is not in order"
    if (source.surge_window is None) != (plan.surge is None):
        yield f"{where}.surge_window is {'missing' if plan.surge else 'of another plan'}"
    frames = [switch.frame for switch in source.switches]
    routes = [NORMAL, *(switch.route for switch in source.switches)]
    if sorted(frames) != frames or min(frames, default=0) < 0 or max([0, *frames]) > source.frames:
        yield f"{where}.switches is not in order"
    elif not {*routes} <= {NORMAL, SURGE}:
        yield f"{where}.switches has an unknown route"
    elif any(one == other for one, other in itertools.pairwise(routes)):
        yield f"{where}.switches has a change to the same route"
    elif frames and plan.surge is None:
        yield f"{where}.switches has changes, and the plan has one route"
