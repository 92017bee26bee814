"""What is kept of the last run of a build folder, as one record and one file, ``run.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.read_text import read_text
from rankslice.framework.reading.records import between, read_document, read_record
from rankslice.measurement.counts import Count, are_in_order

FORMAT = "rankslice-run"
VERSION = 2
_LARGEST_BYTES = 1 << 26

_Amount = Annotated[float, between(0, 1e15)]
_Value = Annotated[float, between(-1e15, 1e15)]
_Number = Annotated[int, between(0, 1 << 62)]


@dataclass(frozen=True, slots=True)
class Times:
    """What frames took, in milliseconds."""

    mean: _Amount
    p50: _Amount
    p99: _Amount
    max: _Amount
    p90: _Amount | None = None
    """Where it is known."""

    @staticmethod
    def of(values: dict[str, float]) -> Times:
        """Return the times of a summary."""
        mean, p50, p99, most = (values[name] for name in ("mean", "p50", "p99", "max"))
        return Times(mean, p50, p99, most, values.get("p90"))


@dataclass(frozen=True, slots=True)
class BoardEnergy:
    """The energy of a board during the run, or why it is not known."""

    board: str
    sensor: str
    """Empty: there is none."""
    joules: _Amount | None
    mean_w: _Amount | None
    mj_per_frame: _Amount | None
    reason: str


@dataclass(frozen=True, slots=True)
class Range:
    """What a value of a board or rank was, while frames went through."""

    name: str
    """With its unit: ``temperature_c.cpu0-thermal``."""
    min: _Value
    mean: _Value
    max: _Value


@dataclass(frozen=True, slots=True)
class BoardHardware:
    """What a board was like during the run."""

    board: str
    series: tuple[Range, ...]
    absent: tuple[str, ...]
    """Kinds of values that it does not tell."""


@dataclass(frozen=True, slots=True)
class RankRun:
    """What a rank did; times are per frame that it handled."""

    rank: _Number
    key: str
    host: str
    processor: str
    """Of its board; empty: unknown."""
    cores: _Number
    engine: str
    frames: _Number
    turns: str
    """Which frames it handles: ``all``."""
    compute_ms: Times
    compute_counts: tuple[Count, ...]
    wait_ms: _Amount
    send_ms: _Amount
    cpu_ms: _Amount
    memory_mb: _Amount
    gpu_memory_mb: _Amount | None
    surge_frames: _Number
    surge_ms: Times | None
    """Computing on the route for a surge; ``None``: there is one route."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that came to its end."""

    ended: str
    """UTC; empty: unknown."""
    model: str
    model_sha256: str
    job_sha256: str
    report_sha256: str
    """Of the ranks' report of the same run."""
    command: tuple[str, ...]
    """What was typed; empty: a program called."""
    versions: tuple[tuple[str, str], ...]
    """Of programs and packages on the machine that started the run."""
    conditions: tuple[tuple[str, str], ...]
    """Under which runs can be compared: where frames came from, how many, at which rate. Empty:
    unknown."""
    frames: _Number
    completed: _Number
    dropped: _Number
    window: _Number
    throughput_fps: _Amount | None
    throughput_of: str
    latency_ms: Times
    latency_counts: tuple[Count, ...]
    preprocess_ms: Times
    postprocess_ms: Times
    bottleneck: str
    verify: str
    """The verdict in words; empty: results were not compared."""
    energy: tuple[BoardEnergy, ...]
    hardware: tuple[BoardHardware, ...]
    ranks: tuple[RankRun, ...]
    notes: tuple[str, ...]

    @property
    def mj_per_frame(self) -> float | None:
        """Energy of all boards per frame, in millijoules; ``None``: that of one is not known."""
        known = [each.mj_per_frame for each in self.energy if each.mj_per_frame is not None]
        return sum(known) if known and len(known) == len(self.energy) else None


def run_text(record: RunRecord) -> str:
    """Return the text of ``run.json``."""
    told = {"format": FORMAT, "version": VERSION, **asdict(record)}
    pairs = {name: dict(told[name]) for name in ("conditions", "versions")}
    return json.dumps({**told, **pairs}) + "\n"


def read_run(path: Path) -> RunRecord:
    """Return what :func:`run_text` wrote, after checking it.

    Raises:
        RankSliceError: the file cannot be read, is none of a run, or contradicts itself.
    """
    where, remedy = str(path), "run it again"
    text = read_text(path, "a run's", _LARGEST_BYTES)
    told, _ = read_document(text, where, "run", (VERSION,), "rankslice run", remedy)
    record = read_record(RunRecord, told, where)
    if not all(
        map(are_in_order, (record.latency_counts, *(r.compute_counts for r in record.ranks)))
    ):
        raise RankSliceError(Mistake(where, "has counts that are not in order", remedy))
    return record
