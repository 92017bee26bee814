"""What a run's measurements mean: rates, percentiles, and where the bottleneck is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.rank_figures import (
    Amount,
    Counts,
    EnergyFigures,
    Number,
    RankFigures,
    Times,
    ends_of,
)
from rankslice.backend.runtime.job.strict import plain
from rankslice.backend.runtime.sources.switching import Change
from rankslice.backend.runtime.summary.bottleneck import pace_of
from rankslice.backend.runtime.summary.rates import SURGE, stretches
from rankslice.measurement.board_history import HardwareSummary
from rankslice.measurement.verify import Verification

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
        known = [each.mj_per_frame for each in self.energy if each.mj_per_frame is not None]
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
    """Return what a run showed.

    Args:
        ranks: their measurements.
        completed_s: times of completion in seconds, in order; ``None``: they were not kept, and
            all frames that did not fail came out.
        hardware: what the boards were like.
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
