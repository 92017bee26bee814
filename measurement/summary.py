"""What a run's measurements mean: rates, percentiles, and where the bottleneck is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.measurement.verify import Verification

__all__ = ["RankSummary", "RunSummary", "summarise", "throughput_fps"]

_LEAST_WARM_UP = 10


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank's part in a run; times are per frame."""

    rank: int
    key: str
    host: str
    cores: tuple[int, ...]
    engine: str
    compute_ms: dict[str, float]
    """``mean``, ``p50``, ``p99`` and ``max``, all segments of the rank together."""
    wait_ms: float
    """Mean time in which no segment was ready."""
    send_ms: float
    """Mean time from the start of each send until its slot was reusable; overlaps computing."""
    cpu_ms: float
    """Mean processor time, of all threads."""
    memory_mb: float
    """Peak resident memory in 10^6 bytes."""


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
    throughput_fps: float
    throughput_of: str
    """``steady state``, or ``all frames`` where there were too few to leave the start out."""
    latency_ms: dict[str, float]
    """``p50``, ``p90``, ``p99`` and ``max``, from arrival to completion."""
    ranks: tuple[RankSummary, ...]
    bottleneck: str
    """A sentence."""
    verify: Verification | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values, for ``run --json``."""
        return {
            "frames": self.frames,
            "completed": self.completed,
            "dropped": list(self.dropped),
            "window": self.window,
            "throughput_fps": self.throughput_fps,
            "throughput_of": self.throughput_of,
            "latency_ms": self.latency_ms,
            "bottleneck": self.bottleneck,
            "verify": self.verify.to_json() if self.verify else None,
            "ranks": [
                {name: getattr(rank, name) for name in RankSummary.__dataclass_fields__}
                for rank in self.ranks
            ],
        }


def throughput_fps(completed_s: NDArray[np.float64], window: int) -> tuple[float, str]:
    """Return frames per second at the sink, and of what.

    With w = max(window, 10), it is (N - w) / (t_N - t_w): the start, while the pipeline fills, is
    left out. For N <= 2 w all frames count.

    Args:
        completed_s: times of completion in seconds, in order.
        window: frames inside the pipeline.
    """
    count, warm_up = len(completed_s), max(window, _LEAST_WARM_UP)
    steady = count > 2 * warm_up
    first = warm_up - 1 if steady else 0
    elapsed = float(completed_s[-1] - completed_s[first]) if count > 1 else 0.0
    rate = (count - 1 - first) / elapsed if elapsed > 0 else 0.0
    return rate, "steady state" if steady else "all frames"


def summarise(
    records: Sequence[dict[str, Any]],
    completed_s: NDArray[np.float64],
    verify: Verification | None = None,
) -> RunSummary:
    """Return what a run showed.

    Args:
        records: the ranks' measurements, as the runtime's report has them.
        completed_s: times of completion in seconds, in order.
        verify: the verdict, if results were compared.
    """
    source = next(record["source"] for record in records if "source" in record)
    rate, rate_of = throughput_fps(completed_s, source["window"])
    ranks = tuple(_rank_summary(record) for record in records)
    return RunSummary(
        frames=source["frames"],
        completed=len(completed_s),
        dropped=tuple(source["dropped"]),
        window=source["window"],
        throughput_fps=rate,
        throughput_of=rate_of,
        latency_ms=source["latency_ms"],
        ranks=ranks,
        bottleneck=_bottleneck(ranks, rate),
        verify=verify,
    )


def _rank_summary(record: dict[str, Any]) -> RankSummary:
    values = {name: record[name] for name in RankSummary.__dataclass_fields__}
    return RankSummary(**{**values, "cores": tuple(record["cores"])})


def _bottleneck(ranks: Sequence[RankSummary], rate: float) -> str:
    """Say what limits the rate: a rank that computes, one that sends, or none."""
    if not rate:
        return "too few frames to tell"
    period_ms = 1e3 / rate
    slowest = max(ranks, key=lambda rank: rank.compute_ms["mean"])
    computing = slowest.compute_ms["mean"]
    sender = max(ranks, key=lambda rank: rank.send_ms)
    where = f"rank {slowest.rank} ({slowest.key})"
    share = f"{computing:.3g} ms of the {period_ms:.3g} ms per frame"
    if computing >= 0.7 * period_ms:
        if len(ranks) == 1:
            return f"{where} computes {share}"
        return f"{where} computes {share}; fewer layers there would make it faster"
    if sender.send_ms >= 0.7 * period_ms:
        return (
            f"sending: rank {sender.rank} ({sender.key}) has messages under way for"
            f" {sender.send_ms:.3g} ms of the {period_ms:.3g} ms per frame; the busiest computes"
            f" {computing:.3g} ms"
        )
    return (
        f"no rank: the busiest, {where}, computes {share}; frames come too slowly, the window is"
        " too small, or the cores are shared"
    )
