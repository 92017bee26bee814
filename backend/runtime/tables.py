"""The tables of a generated driver: what each rank receives, runs and sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import JobError
from .job import ALL, Job, Turns


@dataclass(frozen=True, slots=True)
class Receive:
    """A tensor that comes from another rank, in each frame that both handle."""

    tensor: str
    source: int
    channel: int


@dataclass(frozen=True, slots=True)
class Send:
    """A tensor that goes to another rank, in each frame that both handle."""

    tensor: str
    destination: int
    channel: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A sub-model, with what it takes in and gives out."""

    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """What one rank does with each frame that it handles on a second route."""

    receives: tuple[Receive, ...]
    segments: tuple[Segment, ...]
    sends: tuple[Send, ...]
    turns: Turns = ALL


@dataclass(frozen=True, slots=True)
class Rank:
    """What one rank does with each frame that it handles."""

    key: str
    host: str
    accelerator: str
    cores: tuple[int, ...]
    engine: str
    receives: tuple[Receive, ...]
    segments: tuple[Segment, ...]
    sends: tuple[Send, ...]
    turns: Turns = ALL
    """The frames that its segments handle: not all if several ranks take turns."""
    surge: Route | None = None
    """What it does instead while more frames come than the usual route can handle."""


def check_tables(job: Job, plan_sha256: str, ranks: dict[int, Rank]) -> None:
    """Raise :class:`JobError` unless the driver's tables match the plan."""
    if job.sha256 != plan_sha256:
        raise JobError("plan.json is not the one this driver was generated from; build again")
    for number, rank in enumerate(tables(job)):
        if ranks.get(number) != rank:
            raise JobError(
                f"driver.py and plan.json differ on rank {number}; plan.json decides, so"
                " change the mapping and build again"
            )


def tables(job: Job) -> list[Rank]:
    """Return the tables that belong to a plan."""
    return [
        Rank(
            key=spec.key,
            host=spec.host,
            accelerator=spec.accelerator,
            cores=spec.cores,
            engine=spec.engine,
            surge=Route(**_way(job.surge, spec.rank)) if job.surge is not None else None,
            **_way(job, spec.rank),
        )
        for spec in job.ranks
    ]


def _way(route: Job, rank: int) -> dict[str, Any]:
    """Return what a rank does on a route."""
    return {
        "receives": tuple(
            Receive(c.tensor, c.source, c.number) for c in route.channels if c.destination == rank
        ),
        "segments": tuple(Segment(s.file, s.inputs, s.outputs) for s in route.segments_of(rank)),
        "sends": tuple(
            Send(c.tensor, c.destination, c.number) for c in route.channels if c.source == rank
        ),
        "turns": route.ranks[rank].turns,
    }
