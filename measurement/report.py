"""The report that a job's sink writes, read strictly: it may come from another machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rankslice.backend.runtime.job import Turns
from rankslice.backend.runtime.summary.throughput import NORMAL
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.plan import Plan
from rankslice.framework.reading.untrusted_json import UntrustedJsonError, untrusted_json
from rankslice.framework.wording import described
from rankslice.measurement.counts import are_in_order, counts_of

MAX_REPORT_BYTES = 64 << 20

_SHAPE = "expected the report of a run of this build folder; run it again"
_Count = Annotated[int, Field(ge=0)]
_Figure = Annotated[float, Field(ge=0, lt=1e15)]


class _Record(BaseModel):
    """An object of a report; what else it has is not used."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Spread(_Record):
    mean: _Figure
    p50: _Figure
    p99: _Figure
    max: _Figure


_Limit = Annotated[float, Field(ge=1e-9, lt=1e15)]
_Bucket = Annotated[list[_Limit], Field(min_length=3, max_length=3)]
_Counts = Annotated[list[_Bucket], Field(max_length=10_000)]
"""From, to (in milliseconds), how many: at least one."""


class _Latency(_Spread):
    p90: _Figure


class _Steady(_Record):
    frames: _Count
    compute_share: _Figure
    cpu_share: _Figure
    read_share: _Figure = 0.0
    no_frame_share: _Figure = 0.0
    write_share: _Figure = 0.0
    not_taken_share: _Figure = 0.0


class _Turns(_Record):
    period: _Count
    positions: list[_Count]

    @property
    def turns(self) -> Turns:
        return Turns(self.period, tuple(self.positions))


class _Accelerated(_Record):
    by: str
    operators: _Count | None
    of: _Count | None
    partitions: _Count | None
    others: list[str]
    tf32: bool | None = None
    uses: list[str] = []
    without: dict[str, str] = {}


class _Switch(_Record):
    model_config = ConfigDict(extra="forbid")

    time_s: _Figure
    frame: _Count
    route: Literal["normal", "surge"]
    waiting: _Count
    reason: str


class _Source(_Record):
    frames: _Count
    window: Annotated[int, Field(gt=0)]
    fps: Annotated[float, Field(gt=0)] | None
    latency_ms: _Latency
    latency_counts: _Counts
    preprocess_ms: _Spread
    dropped: list[_Count]
    more_dropped: _Count = 0
    timed_by_file: bool = False
    surge_window: Annotated[int, Field(gt=0)] | None = None
    switches: list[_Switch] = []


class _Sink(_Record):
    postprocess_ms: _Spread
    failed: _Count = 0
    failures: Annotated[list[str], Field(max_length=1000)] = []


class _Energy(_Record):
    model_config = ConfigDict(extra="forbid")

    board: str
    source: Literal["measured", "absent"]
    sensor: str | None
    joules: _Figure | None = None
    seconds: _Figure | None = None
    mean_w: _Figure | None = None
    reason: str | None = None


class _Computed(_Record):
    compute_ms: _Spread
    compute_counts: _Counts
    steady: _Steady | None
    frames: _Count
    turns: _Turns


class _Rank(_Record):
    rank: _Count
    key: str
    host: str
    cores: list[_Count]
    engine: str
    turns: _Turns
    frames: _Count
    accelerated: _Accelerated | None
    processor: str
    compute_ms: _Spread
    compute_counts: _Counts
    wait_ms: _Figure
    send_ms: _Figure
    cpu_ms: _Figure
    wall_s: _Figure
    memory_mb: _Figure
    gpu_memory_mb: _Figure | None = None
    warm_up_ms: _Figure
    not_warmed_up: list[str]
    not_direct: str = ""
    apart: list[Literal["source", "sink"]] = []
    steady: _Steady | None
    source: _Source | None = None
    sink: _Sink | None = None
    energy: _Energy | None = None
    surge: _Computed | None = None


class _Report(_Record):
    ranks: list[_Rank]


def read_report(path: Path, plan: Plan, completed: int) -> list[dict[str, Any]]:
    """Return the ranks' measurements, as :func:`~rankslice.measurement.summary.summarise` takes.

    Raises:
        RankSliceError: the file cannot be read, or is no report of a run of this plan.
    """
    place = str(path)
    try:
        with path.open("rb") as file:
            content = untrusted_json(file.read(MAX_REPORT_BYTES))
        report = _Report.model_validate(content)
    except OSError as error:
        raise RankSliceError(Mistake(place, f"cannot be read: {error.strerror}")) from None
    except UntrustedJsonError as error:
        raise RankSliceError(Mistake(place, str(error), _SHAPE)) from None
    except ValidationError as error:
        raise RankSliceError(Mistake(place, _first_fault(error), _SHAPE)) from None
    raise_mistakes(Mistake(place, found, _SHAPE) for found in _contradictions(report, plan))
    source, sink = report.ranks[plan.job.source].source, report.ranks[plan.job.sink].sink
    assert source is not None
    assert sink is not None
    if completed + sink.failed > source.frames:
        found = f"{source.frames} frames entered, and {completed + sink.failed} came out"
        raise RankSliceError(Mistake(place, found, _SHAPE))
    optional = ("source", "sink", "energy")
    return [
        {name: value for name, value in record.items() if value is not None or name not in optional}
        for record in content["ranks"]
    ]


def _first_fault(error: ValidationError) -> str:
    """Return what is wrong first, and where."""
    detail = error.errors()[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    found = "is missing" if detail["type"] == "missing" else f"is {described(detail['input'])}"
    return f"{where.removeprefix('.') or 'the report'} {found}"


def _contradictions(report: _Report, plan: Plan) -> Iterator[str]:
    """Yield what a report says that the plan does not."""
    if len(report.ranks) != len(plan.ranks):
        yield f"has {len(report.ranks)} ranks, and the plan {len(plan.ranks)}"
        return
    for number, (rank, planned) in enumerate(zip(report.ranks, plan.ranks, strict=True)):
        if (rank.rank, rank.key) != (number, planned.key):
            yield f"ranks[{number}] is rank {rank.rank} ({rank.key})"
        if (rank.surge is None) != (plan.surge is None):
            yield f"ranks[{number}] was {'not ' * (rank.surge is None)}on the route for a surge"
        told = [rank.turns, *([rank.surge.turns] if rank.surge is not None else [])]
        for turns, route in zip(told, plan.routes, strict=False):
            if turns.turns != route.ranks[number].turns:
                yield f"ranks[{number}] takes different turns than in the plan"
        if not are_in_order(counts_of(rank.compute_counts)):
            yield f"ranks[{number}].compute_counts is not in order"
        for name, owner in (("source", plan.job.source), ("sink", plan.job.sink)):
            if (getattr(rank, name) is not None) != (number == owner):
                yield f"ranks[{number}] is {'not ' if number == owner else ''}the {name}"
        if rank.source is not None:
            yield from _source_contradictions(rank.source, plan, f"ranks[{number}].source")


def _source_contradictions(source: _Source, plan: Plan, where: str) -> Iterator[str]:
    if sorted(set(source.dropped)) != source.dropped:
        yield f"{where}.dropped is not in order"
    if (source.surge_window is None) != (plan.surge is None):
        yield f"{where}.surge_window is {'missing' if plan.surge else 'of another plan'}"
    if not are_in_order(counts_of(source.latency_counts)):
        yield f"{where}.latency_counts is not in order"
    frames = [switch.frame for switch in source.switches]
    routes = [NORMAL, *(switch.route for switch in source.switches)]
    if sorted(frames) != frames or max(frames, default=0) > source.frames:
        yield f"{where}.switches is not in order"
    elif any(one == other for one, other in itertools.pairwise(routes)):
        yield f"{where}.switches has a change to the same route"
    elif frames and plan.surge is None:
        yield f"{where}.switches has changes, and the plan has one route"
