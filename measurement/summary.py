"""A finished run: its figures, and the record of it in ``run.json``.

Counts, which are left of the times of frames, are tuples of a lower limit, an upper limit one per
cent above it, both in milliseconds, and how many values lie between.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.histogram import GROWTH
from rankslice.backend.runtime.figures.rank_figures import (
    Amount,
    Counts,
    EnergyFigures,
    Number,
    RankFigures,
    Times,
    ends_of,
)
from rankslice.backend.runtime.job.strict import PAIRS, plain
from rankslice.backend.runtime.sources.switching import Change
from rankslice.backend.runtime.summary.bottleneck import pace_of
from rankslice.backend.runtime.summary.rates import SURGE, stretches
from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.reading.records import read_document
from rankslice.measurement.board_history import HardwareSummary
from rankslice.measurement.verify import Verification

FORMAT = "rankslice-run"
VERSION = 4
_MAX_BYTES = 1 << 26
_ELSEWHERE = ("compute_counts", "source", "sink", "energy")
"""What a rank's entry in ``run --json`` leaves out."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A finished run."""

    frames: Number
    completed: Number
    dropped: tuple[Number, ...]
    window: Number
    """Most frames inside, on the usual route."""
    throughput_fps: Amount | None
    """After the first frames; ``None``: there were too few frames to tell."""
    throughput_of: str
    """``steady state``, ``both routes`` if frames changed the route, or ``too few frames``."""
    latency_ms: Times
    """``mean``, ``p50``, ``p90``, ``p99`` and ``max``, from arrival to completion."""
    preprocess_ms: Times
    postprocess_ms: Times
    """Of taking a frame's outputs and appending them to the results."""
    ranks: tuple[RankFigures, ...]
    bottleneck: str
    verify: Verification | None = None
    switches: tuple[Change, ...] = ()
    surge_window: Number | None = None
    """Most frames inside on the route for a surge; ``None``: there is one route."""
    energy: tuple[EnergyFigures, ...] = ()
    """By board, in the order of the ranks."""
    more_dropped: Number = 0
    """Arrivals that found no room, beyond those whose numbers are kept."""
    latency_counts: Counts = ()
    """How many frames had which latency."""
    hardware: tuple[HardwareSummary, ...] = ()
    """By board."""
    modes: dict[str, BoardMode] = field(default_factory=dict)
    """By board, before the start."""
    failed: Number = 0
    failures: tuple[str, ...] = ()
    """Of the first of them, where and why."""

    @property
    def on_surge(self) -> int:
        """How many of the frames that came out took the route for a surge."""
        parts = stretches(self.switches, self.completed)
        return sum(end - begin for begin, end, route in parts if route == SURGE)

    @property
    def all_dropped(self) -> int:
        """How many arrivals found no room."""
        return len(self.dropped) + self.more_dropped

    @property
    def mj_per_frame(self) -> float | None:
        """Energy of all boards per frame, in millijoules; ``None``: that of one is not known."""
        known = [b.mj_per_frame for b in self.energy if b.mj_per_frame is not None]
        return sum(known) if known and len(known) == len(self.energy) else None

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values, for ``run --json``."""
        record: dict[str, Any] = plain(RunSummary, self)
        del record["latency_counts"]
        for rank in record["ranks"]:
            for name in _ELSEWHERE:
                del rank[name]
            if rank["surge"] is not None:
                del rank["surge"]["compute_counts"]
        return {**record, "verify": self.verify.to_json() if self.verify else None}


def summarise(
    ranks: Sequence[RankFigures],
    completed_s: NDArray[np.float64] | None,
    hardware: Sequence[HardwareSummary] = (),
) -> RunSummary:
    """Compute the figures of a run from its ranks' measurements.

    Args:
        completed_s: times of completion in seconds, in order; ``None``: they were not kept, and
            all frames that did not fail came out.
    """
    source, sink = ends_of(ranks)
    pace = pace_of(ranks, completed_s)
    return RunSummary(
        frames=source.frames,
        completed=pace.completed,
        dropped=source.dropped,
        more_dropped=source.more_dropped,
        failed=sink.failed,
        failures=sink.failures,
        switches=source.switches,
        window=source.window,
        surge_window=source.surge_window,
        throughput_fps=pace.fps,
        throughput_of=pace.of,
        latency_ms=source.latency_ms,
        latency_counts=source.latency_counts,
        preprocess_ms=source.preprocess_ms,
        postprocess_ms=sink.postprocess_ms,
        ranks=tuple(replace(rank, source=None, sink=None, energy=None) for rank in ranks),
        bottleneck=pace.bottleneck,
        hardware=tuple(hardware),
        energy=tuple(
            _per_frame(rank.energy, pace.completed) for rank in ranks if rank.energy is not None
        ),
    )


def _per_frame(board: EnergyFigures, frames: int) -> EnergyFigures:
    if board.joules is None or not frames:
        return board
    return replace(board, mj_per_frame=1e3 * board.joules / frames)


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
    versions: PAIRS
    """Of programs and packages on the machine that started the run."""
    conditions: PAIRS
    """Under which runs can be compared: where frames came from, how many, at which rate. Empty:
    unknown."""
    summary: RunSummary
    verify: str
    """The verdict in words; empty: results were not compared."""
    notes: tuple[str, ...]


def run_text(record: RunRecord) -> str:
    content = plain(RunRecord, record)
    content["summary"]["verify"] = None
    return json.dumps({"format": FORMAT, "version": VERSION, **content}) + "\n"


def read_run(path: Path) -> RunRecord:
    """Read the file of a run.

    Raises:
        RankSliceError: the file cannot be read, is none of a run, or contradicts itself.
    """
    text = read_text(path, "a run's", _MAX_BYTES)
    return read_document(
        RunRecord, text, str(path), "run", VERSION, "rankslice run", "run it again"
    )


def total_count(counts: Counts) -> int:
    return round(sum(count for _, _, count in counts))


def percentile_ms(counts: Counts, percent: float) -> float:
    """Return the value that ``percent`` of all do not exceed, to one per cent; 0 without any."""
    needed = max(1, math.ceil(total_count(counts) * percent / 100))
    for low, high, count in counts:
        needed -= round(count)
        if needed <= 0:
            return math.sqrt(low * high)
    return 0.0


def merged_counts(counts: Counts, most: int) -> Counts:
    """Return at most so many counts of the same width, on a logarithmic scale."""
    if not counts:
        return ()
    first = counts[0][0]
    places = [round(math.log(low / first) / GROWTH) for low, _, _ in counts]
    width = places[-1] // most + 1
    sums: dict[int, float] = {}
    for place, (_, _, count) in zip(places, counts, strict=True):
        sums[place // width] = sums.get(place // width, 0) + count
    grown = math.exp(GROWTH * width)
    return tuple((first * grown**n, first * grown ** (n + 1), count) for n, count in sums.items())
