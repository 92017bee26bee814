"""What a run's measurements mean: rates, percentiles, and where the bottleneck is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.summary.bottleneck import pace_of
from rankslice.backend.runtime.summary.throughput import SURGE, stretches
from rankslice.backend.runtime.summary.work import RankWork, work_of
from rankslice.measurement.counts import Count, counts_of
from rankslice.measurement.hardware import HardwareSummary
from rankslice.measurement.verify import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary(RankWork):
    """One rank's part in a run, with all that it tells."""

    engine: str
    send_ms: float
    """Mean time from the start of each send until its slot was reusable; overlaps computing."""
    cpu_ms: float
    """Mean processor time, of all threads."""
    memory_mb: float
    """Peak resident memory in 10^6 bytes."""
    warm_up_ms: float = 0.0
    """Time of the runs on zeros before frame 0, of all its segments together."""
    not_warmed_up: tuple[str, ...] = ()
    """Segments without such a run, and why: ``segment 0: it draws random numbers``."""
    not_direct: str = ""
    """Why ranks of one board exchange messages instead of sharing memory; empty: they share it."""
    gpu_memory_mb: float | None = None
    """Memory on NVIDIA's GPUs in 10^6 bytes; ``None``: it has none, or the driver does not tell."""
    processor: str = ""
    """Of its board; empty: unknown."""
    compute_counts: tuple[Count, ...] = ()
    """How many frames took how long, all segments together."""


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """The energy of one board while the run lasted.

    It is of all that the board's sensor sees, also what the board draws at rest.
    """

    board: str
    source: str
    """``measured``, by the sensor, or ``absent``; then all figures are ``None``."""
    sensor: str | None
    """By the system's own names; ``None``: there is none that may be read."""
    joules: float | None = None
    seconds: float | None = None
    """For which it was counted."""
    mean_w: float | None = None
    mj_per_frame: float | None = None
    """All of it over the frames that came out, in millijoules."""
    reason: str | None = None
    """Why it is absent."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A finished run."""

    frames: int
    """How many entered."""
    completed: int
    """How many came out."""
    dropped: tuple[int, ...]
    """Arrivals that found no room, by number."""
    window: int
    """Most frames inside, on the usual route."""
    throughput_fps: float | None
    """After the first frames; ``None``: there were too few frames to tell."""
    throughput_of: str
    """``steady state``, ``both routes`` if frames changed the route, or ``too few frames``."""
    latency_ms: dict[str, float]
    """``mean``, ``p50``, ``p90``, ``p99`` and ``max``, from arrival to completion."""
    preprocess_ms: dict[str, float]
    """``mean``, ``p50``, ``p99`` and ``max`` of reading a frame and making model inputs of it."""
    postprocess_ms: dict[str, float]
    """The same of taking a frame's outputs and appending them to the results."""
    ranks: tuple[RankSummary, ...]
    bottleneck: str
    """A sentence."""
    verify: Verification | None = None
    switches: tuple[dict[str, Any], ...] = ()
    """Changes of the route: ``time_s`` since the start, the first ``frame`` on the new ``route``,
    how many were ``waiting``, and the ``reason``."""
    surge_window: int | None = None
    """Most frames inside on the route for a surge; ``None``: there is one route."""
    energy: tuple[EnergySummary, ...] = ()
    """By board, in the order of the ranks."""
    more_dropped: int = 0
    """Arrivals that found no room, beyond those whose numbers are kept."""
    latency_counts: tuple[Count, ...] = ()
    """How many frames had which latency."""
    hardware: tuple[HardwareSummary, ...] = ()
    """By board."""
    failed: int = 0
    """How many frames failed, and have no results."""
    failures: tuple[str, ...] = ()
    """Of the first of them, where and why."""

    @property
    def on_surge(self) -> int:
        """How many of the frames that came out took the route for a surge."""
        return sum(end - begin for begin, end, route in self.stretches if route == SURGE)

    @property
    def stretches(self) -> list[tuple[int, int, str]]:
        """First frame, the one after the last, and route of frames that took the same one."""
        return stretches(self.switches, self.completed)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values, for ``run --json``."""
        return {
            "frames": self.frames,
            "completed": self.completed,
            "dropped": list(self.dropped),
            "more_dropped": self.more_dropped,
            "failed": self.failed,
            "failures": list(self.failures),
            "switches": list(self.switches),
            "window": self.window,
            "surge_window": self.surge_window,
            "throughput_fps": self.throughput_fps,
            "throughput_of": self.throughput_of,
            "latency_ms": self.latency_ms,
            "preprocess_ms": self.preprocess_ms,
            "postprocess_ms": self.postprocess_ms,
            "bottleneck": self.bottleneck,
            "verify": self.verify.to_json() if self.verify else None,
            "energy": [asdict(board) for board in self.energy],
            "hardware": [asdict(board) for board in self.hardware],
            "ranks": [_without_counts(rank) for rank in self.ranks],
        }


def summarise(
    records: Sequence[dict[str, Any]],
    completed_s: NDArray[np.float64] | None,
    hardware: Sequence[HardwareSummary] = (),
) -> RunSummary:
    """Return what a run showed.

    Args:
        records: the ranks' measurements, as the runtime's report has them.
        completed_s: times of completion in seconds, in order; ``None``: they were not kept, and
            all frames that did not fail came out.
        hardware: what the boards were like.
    """
    source = next(record["source"] for record in records if "source" in record)
    sink = next(record["sink"] for record in records if "sink" in record)
    ranks = tuple(_rank_summary(record) for record in records)
    pace = pace_of(records, ranks, completed_s)
    return RunSummary(
        frames=source["frames"],
        completed=pace.completed,
        dropped=tuple(source["dropped"]),
        more_dropped=source.get("more_dropped", 0),
        failed=sink.get("failed", 0),
        failures=tuple(sink.get("failures", ())),
        switches=tuple(source.get("switches", ())),
        window=source["window"],
        surge_window=source.get("surge_window"),
        throughput_fps=pace.fps,
        throughput_of=pace.of,
        latency_ms=source["latency_ms"],
        latency_counts=counts_of(source.get("latency_counts", ())),
        preprocess_ms=source["preprocess_ms"],
        postprocess_ms=sink["postprocess_ms"],
        ranks=ranks,
        bottleneck=pace.bottleneck,
        hardware=tuple(hardware),
        energy=tuple(
            _energy_summary(record["energy"], pace.completed)
            for record in records
            if "energy" in record
        ),
    )


def _energy_summary(record: dict[str, Any], frames: int) -> EnergySummary:
    joules = record.get("joules")
    per_frame = 1e3 * joules / frames if joules is not None and frames else None
    return EnergySummary(**record, mj_per_frame=per_frame)


def _rank_summary(record: dict[str, Any]) -> RankSummary:
    values: dict[str, Any] = {name: record.get(name) for name in RankSummary.__dataclass_fields__}
    values["processor"] = record.get("processor", "")
    values["compute_counts"] = counts_of(record.get("compute_counts", ()))
    values["not_direct"] = record.get("not_direct", "")
    values["not_warmed_up"] = tuple(record["not_warmed_up"])
    return RankSummary(**{**values, **work_of(record)})


def _without_counts(rank: RankSummary) -> dict[str, Any]:
    return {name: value for name, value in asdict(rank).items() if name != "compute_counts"}
