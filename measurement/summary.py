"""What a run's measurements mean: rates, percentiles, and where the bottleneck is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.turns import ALL, Turns
from rankslice.measurement.throughput import STEADY, TOO_FEW, throughput_fps, too_few_text
from rankslice.measurement.verify import Verification

_BUSY = 0.7
"""Share of the time per frame from which something counts as the bottleneck."""


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank's part in a run; times are per frame that it handles.

    What a rank tells has its form in ``report.py``, too.
    """

    rank: int
    key: str
    host: str
    cores: tuple[int, ...]
    engine: str
    frames: int
    """How many it handled."""
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
    turns: Turns = ALL
    """Which frames it handles: not all if several ranks take turns."""
    warm_up_ms: float = 0.0
    """Time of the runs on zeros before frame 0, of all its segments together."""
    not_warmed_up: tuple[str, ...] = ()
    """Segments without such a run, and why: ``segment 0: it draws random numbers``."""
    not_direct: str = ""
    """Why ranks of one board exchange messages instead of sharing memory; empty: they share it."""
    steady: dict[str, float] | None = None
    """What it did after the first frames: ``frames``, ``compute_share`` and ``cpu_share`` of the
    time (the latter over 1 where several cores worked); ``None`` where no others came."""
    gpu_memory_mb: float | None = None
    """Memory on NVIDIA's GPUs in 10^6 bytes; ``None``: it has none, or the driver does not tell."""
    accelerated: dict[str, Any] | None = None
    """``by`` whom, how many ``operators`` ``of`` how many in how many ``partitions``, the kinds of
    ``others``, whether float32 is ``tf32``, what it ``uses`` beside, and ``without`` what, and why;
    ``None`` where nothing is meant to be accelerated."""


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
    throughput_fps: float | None
    """In the steady state; ``None``: there were too few frames to tell."""
    throughput_of: str
    """``steady state``, or ``too few frames``."""
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
    energy: tuple[EnergySummary, ...] = ()
    """By board, in the order of the ranks."""

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values, for ``run --json``."""
        return {
            "frames": self.frames,
            "completed": self.completed,
            "dropped": list(self.dropped),
            "switches": list(self.switches),
            "window": self.window,
            "throughput_fps": self.throughput_fps,
            "throughput_of": self.throughput_of,
            "latency_ms": self.latency_ms,
            "preprocess_ms": self.preprocess_ms,
            "postprocess_ms": self.postprocess_ms,
            "bottleneck": self.bottleneck,
            "verify": self.verify.to_json() if self.verify else None,
            "energy": [asdict(board) for board in self.energy],
            "ranks": [asdict(rank) for rank in self.ranks],
        }


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
    sink = next(record["sink"] for record in records if "sink" in record)
    rate = _steady_rate(completed_s, source["window"])
    ranks = tuple(_rank_summary(record) for record in records)
    return RunSummary(
        frames=source["frames"],
        completed=len(completed_s),
        dropped=tuple(source["dropped"]),
        switches=tuple(source.get("switches", ())),
        window=source["window"],
        throughput_fps=rate,
        throughput_of=STEADY if rate else TOO_FEW,
        latency_ms=source["latency_ms"],
        preprocess_ms=source["preprocess_ms"],
        postprocess_ms=sink["postprocess_ms"],
        ranks=ranks,
        bottleneck=(
            _bottleneck(ranks, rate, source["fps"])
            if rate
            else too_few_text(len(completed_s), source["window"])
        ),
        verify=verify,
        energy=tuple(
            _energy_summary(record["energy"], len(completed_s))
            for record in records
            if "energy" in record
        ),
    )


def _energy_summary(record: dict[str, Any], frames: int) -> EnergySummary:
    joules = record.get("joules")
    per_frame = 1e3 * joules / frames if joules is not None and frames else None
    return EnergySummary(**record, mj_per_frame=per_frame)


def _steady_rate(completed_s: NDArray[np.float64], window: int) -> float | None:
    rate, rate_of = throughput_fps(completed_s, window)
    return rate if rate and rate_of == STEADY else None


def _rank_summary(record: dict[str, Any]) -> RankSummary:
    values: dict[str, Any] = {name: record.get(name) for name in RankSummary.__dataclass_fields__}
    tuples = {name: tuple(record[name]) for name in ("cores", "not_warmed_up")}
    values["not_direct"] = record.get("not_direct", "")
    values["turns"] = Turns(record["turns"]["period"], tuple(record["turns"]["positions"]))
    return RankSummary(**{**values, **tuples})


def _bottleneck(ranks: Sequence[RankSummary], rate: float, fps: float | None) -> str:
    """Say what limits the rate in the steady state: a rank, a core that ranks share, or the frames.

    Times are shares of the time in which a frame comes out, so none exceeds it; of a rank that
    takes turns, too, though it may take longer for a frame.
    """
    period_ms = 1e3 / rate
    slowest = max(ranks, key=_compute_share)
    turns = "" if slowest.turns == ALL else f"; frames {slowest.turns}"
    where = f"rank {slowest.rank} ({slowest.key}{turns})"
    share = f"{_compute_share(slowest) * period_ms:.3g} ms of the {period_ms:.3g} ms per frame"
    core, busy, crowd = _busiest_core(ranks)
    is_crowded = len(crowd) > 1 and busy >= _BUSY and _core_share(slowest) < _BUSY
    if _compute_share(slowest) >= _BUSY and not is_crowded:
        fewer = "fewer layers" if slowest.turns == ALL else "fewer layers or frames"
        advice = f"; {fewer} there would make it faster" if len(ranks) > 1 else ""
        return f"{where} computes {share}{advice}"
    if fps is not None and rate >= _BUSY * fps:
        return f"the source: {fps:g} frames/s arrive; the busiest, {where}, computes {share}"
    if busy >= _BUSY:
        computing = min(busy, sum(map(_compute_share, crowd)))
        ranks_keep = f"rank {crowd[0].rank} keeps"
        if len(crowd) > 1:
            ranks_keep = f"ranks {' and '.join(str(rank.rank) for rank in crowd)} keep"
        return (
            f"{core}: {ranks_keep} it busy for {busy * period_ms:.3g} ms of the"
            f" {period_ms:.3g} ms per frame, {computing * period_ms:.3g} ms of that computing"
        )
    return (
        f"no rank: the busiest, {where}, computes {share}; the rest is waiting for the source or"
        " for other ranks, which a larger --window may hide"
    )


def _compute_share(rank: RankSummary) -> float:
    """Return in which part of the steady state a rank computed, 0 to 1."""
    return min(1.0, rank.steady["compute_share"]) if rank.steady else 0.0


def _core_share(rank: RankSummary) -> float:
    """Return in which part of the steady state a rank kept each of its cores busy, 0 to 1."""
    if not rank.steady or not rank.cores:
        return 0.0
    return min(1.0, rank.steady["cpu_share"] / len(rank.cores))


def _busiest_core(ranks: Sequence[RankSummary]) -> tuple[str, float, list[RankSummary]]:
    """Return the core that works most, in which part of the time (0 to 1), and its ranks."""
    load: dict[tuple[str, int], float] = defaultdict(float)
    crowd: dict[tuple[str, int], list[RankSummary]] = defaultdict(list)
    for rank in ranks:
        for core in rank.cores:
            load[rank.host, core] += _core_share(rank)
            crowd[rank.host, core].append(rank)
    if not load:
        return "", 0.0, []
    host, core = max(load, key=lambda place: load[place])
    return f"core {core} of {host}", min(1.0, load[host, core]), crowd[host, core]
