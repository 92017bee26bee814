"""What each rank of a run has done, as its report has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..job import ALL, Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRoute:
    """A rank's part in the frames that took a route; times are per frame that it handles."""

    frames: int
    """How many it handled."""
    compute_ms: dict[str, float]
    """``mean``, ``p50``, ``p99`` and ``max``, all segments of the route together."""
    turns: Turns = ALL
    """Which frames of the route it handles: not all if several ranks take turns."""
    steady: dict[str, float] | None = None
    """What it did after the first frames: ``frames``, ``compute_share`` and ``cpu_share`` of the
    time (the latter over 1 where several cores worked). Of the source's rank ``read_share``, and
    ``no_frame_share``, in which no frame had come though there was room; of the sink's
    ``write_share``, and ``not_taken_share``, in which the reader of its results took none. ``None``
    where no others came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWork(OnRoute):
    """One rank's part in a run, on the usual route and on that for a surge.

    What a rank tells has its form in ``report.py``, too.
    """

    rank: int
    key: str
    host: str
    cores: tuple[int, ...]
    wait_ms: float
    """Mean time in which the computing thread had nothing to do, nor had another one of its only
    core."""
    apart: tuple[str, ...] = ()
    """Which of source and sink have a thread of their own here."""
    accelerated: dict[str, Any] | None = None
    """``by`` whom, how many ``operators`` ``of`` how many in how many ``partitions``, the kinds of
    ``others``, whether float32 is ``tf32``, what it ``uses`` beside, and ``without`` what, and why;
    ``None`` where nothing is meant to be accelerated."""
    surge: OnRoute | None = None
    """What it did on the route for a surge; ``None``: there is one route."""


def work_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of :class:`RankWork` that a rank's measurements tell, by name."""
    values = {name: record.get(name) for name in RankWork.__dataclass_fields__}
    values |= {"cores": tuple(record["cores"]), "apart": tuple(record.get("apart", ()))}
    values["turns"] = _turns(record)
    if surge := record.get("surge"):
        told = {name: surge[name] for name in ("frames", "compute_ms", "steady")}
        values["surge"] = OnRoute(**told, turns=_turns(surge))
    return values


def _turns(record: Mapping[str, Any]) -> Turns:
    return Turns(record["turns"]["period"], tuple(record["turns"]["positions"]))
