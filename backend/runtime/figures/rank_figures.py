"""What a rank and its board measured during a run: one record, for the report and all who read it.

A rank fills it in (``pipeline/rank.py``), the report is its JSON, and its types say what a report
may hold. Times are in milliseconds per frame that the rank handles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from ..job import ALL, Turns
from ..job.strict import Only, between
from ..sources.switching import Change
from .acceleration import Acceleration

MAX_COUNTS = 10_000
MAX_RAILS = 64

_TIMES = ("mean", "p50", "p90", "p99", "max")
_STEADY = ("frames", "compute_share", "cpu_share")


def _has_times(values: Mapping[str, float]) -> bool:
    return {*values} == {*_TIMES} and all(0 <= value < 1e15 for value in values.values())


def _has_shares(values: Mapping[str, float]) -> bool:
    return {*_STEADY} <= {*values} and all(0 <= value < 1e15 for value in values.values())


def are_counts(counts: Sequence[Sequence[float]]) -> bool:
    """Return whether each has two limits and a number, and begins where the last one ends or later.

    The limits are in milliseconds.
    """
    if len(counts) > MAX_COUNTS or any(len(bucket) != 3 for bucket in counts):
        return False
    limits = [limit for low, high, _ in counts for limit in (low, high)]
    are_sound = all(1e-9 <= low < high < 1e15 and 1 <= count < 1e15 for low, high, count in counts)
    return are_sound and limits == sorted(limits)


Amount: TypeAlias = Annotated[float, between(0, 1e15)]
Number: TypeAlias = Annotated[int, between(0, 1 << 62)]
Times: TypeAlias = Annotated[dict[str, float], Only(_has_times, "mean, p50, p90, p99 and max")]
Counts: TypeAlias = Annotated[
    tuple[tuple[float, ...], ...], Only(are_counts, "ascending limits, and how many lie between")
]
"""How many values lie where: lower limit, upper limit, number."""
Steady: TypeAlias = Annotated[
    dict[str, float], Only(_has_shares, "frames, compute_share and cpu_share")
]
Rails: TypeAlias = Annotated[
    dict[str, Amount], Only(lambda rails: len(rails) <= MAX_RAILS, "64 rails at most")
]


def _shown(heading: str, unit: str) -> dict[str, str]:
    """Let all tables of ranks have a column for a field, unless it is ``None`` for all ranks.

    The heading has to name units other than ``ms`` and ``MB``.
    """
    return {"heading": heading, "unit": unit}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFigures:
    """A rank's part in the frames that took a route."""

    frames: Number
    compute_ms: Times
    """All segments of the route together."""
    compute_counts: Counts = ()
    turns: Turns = ALL
    """Which frames of the route it handles: not all if several ranks take turns."""
    steady: Steady | None = None
    """What it did after the first frames: ``frames``, ``compute_share`` and ``cpu_share`` of the
    time (the latter over 1 where several cores worked). Of the source's rank ``read_share``, and
    ``no_frame_share``, in which no frame had come though there was room; of the sink's
    ``write_share``, and ``not_taken_share``, in which the reader of its results took none. ``None``
    where no others came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    frames: Number
    window: Annotated[int, between(1, 1 << 62)]
    fps: Annotated[float, Only(lambda value: value > 0, "a number above 0")] | None
    """At which frames arrive; ``None``: as fast as they are taken, or at times of a file."""
    latency_ms: Times
    latency_counts: Counts = ()
    preprocess_ms: Times
    """Of reading a frame and making model inputs of it."""
    dropped: tuple[Number, ...] = ()
    """Arrivals that found no room, by number, ascending."""
    more_dropped: Number = 0
    """Those beyond the first, whose numbers are not kept."""
    timed_by_file: bool = False
    surge_window: Annotated[int, between(1, 1 << 62)] | None = None
    """``None``: there is one route."""
    switches: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFigures:
    postprocess_ms: Times
    """Of taking a frame's outputs and appending them to the results."""
    failed: Number = 0
    failures: Annotated[tuple[str, ...], Only(lambda texts: len(texts) <= 1000, "a thousand")] = ()
    """Of the first of them, where and why."""


@dataclass(frozen=True, slots=True)
class EnergyFigures:
    """The energy of one board while the run lasted.

    It is of all that the board's sensor sees, also what the board draws at rest.
    """

    board: str
    source: Annotated[str, Only({"measured", "absent"}.__contains__, "measured or absent")]
    """``absent``: all figures are ``None``."""
    sensor: str | None
    """By the system's own names; ``None``: there is none that may be read."""
    joules: Amount | None = None
    seconds: Amount | None = None
    """For which it was counted."""
    mean_w: Amount | None = None
    mj_per_frame: Amount | None = None
    """All of it over the frames that came out, in millijoules; unknown to ranks."""
    reason: str | None = None
    rails: Rails = field(default_factory=dict)
    """Joules in the same time by supply, as its label names it. One may be behind another."""

    def rail_mj_per_frame(self, rail: str) -> float | None:
        if self.mj_per_frame is None or not self.joules:
            return None
        return self.mj_per_frame * self.rails[rail] / self.joules


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures(RouteFigures):
    """What a rank did, on the usual route and on that for a surge."""

    rank: Number
    key: str
    host: str
    cores: tuple[Number, ...]
    engine: str
    wait_ms: Amount = field(metadata=_shown("wait", "ms"))
    """Mean time in which the computing thread had nothing to do, nor had another one of its only
    core."""
    send_ms: Amount = field(metadata=_shown("send", "ms"))
    """Mean time from the start of each send until its slot was reusable; overlaps computing, but
    for that of compressing."""
    compression_ratio: Amount | None = field(default=None, metadata=_shown("zstd ratio", ""))
    """Bytes of what it sent by compressed channels over those of the messages; ``None``: it sent
    none."""
    cpu_ms: Amount = field(metadata=_shown("CPU", "ms"))
    wall_s: Amount
    memory_mb: Amount = field(metadata=_shown("memory", "MB"))
    """Peak resident memory in 10^6 bytes."""
    gpu_memory_mb: Amount | None = field(default=None, metadata=_shown("of the GPU", "MB"))
    """On NVIDIA's GPUs in 10^6 bytes; ``None``: it has none, or the driver does not tell."""
    processor: str = ""
    """Of its board; empty: unknown."""
    python: str = ""
    numpy: str = ""
    mpi: str = ""
    accelerated: Acceleration | None = None
    """``None`` where nothing is meant to be accelerated."""
    warm_up_ms: Amount = 0.0
    """Time of the runs on zeros before frame 0, of all its segments together."""
    not_warmed_up: tuple[str, ...] = ()
    """Segments without such a run, and why: ``segment 0: it draws random numbers``."""
    not_direct: str = ""
    """Why ranks of one board exchange messages instead of sharing memory; empty: they share it."""
    apart: tuple[str, ...] = ()
    """Which of source and sink have a thread of their own here."""
    surge: RouteFigures | None = None
    """What it did on the route for a surge; ``None``: there is one route."""
    source: SourceFigures | None = None
    sink: SinkFigures | None = None
    energy: EnergyFigures | None = None
    """Of its board, on the board's first rank."""

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.key})"


def ends_of(ranks: Sequence[RankFigures]) -> tuple[SourceFigures, SinkFigures]:
    source = next(rank.source for rank in ranks if rank.source is not None)
    return source, next(rank.sink for rank in ranks if rank.sink is not None)
