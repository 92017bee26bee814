"""The scenarios of MLPerf's inference benchmark, by its own definitions.

Reddi et al., "MLPerf Inference Benchmark", ISCA 2020, section III-C, and the rules as they are by
now: a percentile counts with a confidence of 99 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import digits
from rankslice.measurement.bench.early_stopping import (
    CONFIDENCE,
    overruns_allowed,
    proven_latency,
    queries_needed,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """How queries come, and which figure counts."""

    name: str
    arrival: str
    """When queries come, for people."""
    percentile: float | None
    """Of the latencies that count, as a share; ``None``: the throughput counts."""
    samples: int = 1
    """Frames of a query; 0: all of them are one."""

    @property
    def least_queries(self) -> int:
        """How many it takes: those that prove the percentile although one of them exceeds it."""
        return 1 if self.percentile is None else queries_needed(self.percentile, 1)

    @property
    def least_frames(self) -> int:
        return self.least_queries * max(1, self.samples)


_SURE = f"{100 * CONFIDENCE:g} %"

SCENARIOS = {
    each.name: each
    for each in (
        Scenario("single", "the next query arrives when the previous one has finished", 0.90),
        Scenario(
            "multi",
            "queries of 8 frames; the next one arrives when the previous one has finished",
            0.99,
            8,
        ),
        Scenario("server", "queries arrive at random times, as a Poisson process", 0.99),
        Scenario("offline", "all frames arrive at once", None, 0),
    )
}


@dataclass(frozen=True, slots=True)
class ScenarioFigures:
    """What a scenario measured; times are seconds."""

    scenario: Scenario
    queries: int
    frames: int
    throughput_fps: float
    """Frames over the time from the first query until the last result."""
    mean_s: float
    percentile_s: float | None
    """The scenario's percentile of these latencies, as it was measured."""
    proven_s: float | None
    """The limit within which this percentile is with a confidence of 99 %."""
    discarded: int
    """Queries that were slower than this limit."""
    target_fps: float | None = None
    """Of a server: rate at which queries come, on average."""
    limit_s: float | None = None
    """Of a server: limit for the latency."""
    overruns: int = 0
    """Queries above it."""

    @property
    def allowed_overruns(self) -> int:
        percentile = self.scenario.percentile
        return self.queries if percentile is None else overruns_allowed(percentile, self.queries)

    @property
    def is_within_limit(self) -> bool | None:
        """Whether the percentile is proven to be within the limit; ``None``: there is no limit."""
        return None if self.limit_s is None else self.overruns <= self.allowed_overruns

    def verdict(self) -> str:
        if self.scenario.percentile is None:
            return f"{digits(self.throughput_fps, 4)} frames/s"
        share = f"p{100 * self.scenario.percentile:g}"
        if self.limit_s is None:
            proven_ms = 1e3 * (self.proven_s or 0.0)
            return f"{share} <= {digits(proven_ms, 4)} ms with {_SURE} confidence"
        limit = f"{share} <= {1e3 * self.limit_s:g} ms"
        found = (
            f"{self.overruns} of {self.queries} queries took longer, {self.allowed_overruns} may"
        )
        if self.is_within_limit:
            return f"{limit} with {_SURE} confidence: {found}"
        return f"{limit} is not shown: {found}"


def refuse_too_few(scenario: Scenario, frames: int) -> None:
    """Raise if a scenario needs more frames.

    Raises:
        RankSliceError: it does; the message says how many.
    """
    if frames >= scenario.least_frames:
        return
    if scenario.percentile is None:
        raise RankSliceError(Mistake("--frames", "is 0", "expected 1 or more"))
    queries, needed = scenario.least_queries, scenario.least_frames
    of_queries = f" ({queries} queries of {scenario.samples})" if scenario.samples > 1 else ""
    share = f"p{100 * scenario.percentile:g}"
    found = f"{frames} are too few to determine {share} with {_SURE} confidence"
    raise RankSliceError(Mistake("--frames", found, f"give at least {needed}{of_queries}"))


def arrival_times(fps: float, queries: int, seed: int) -> NDArray[np.float64]:
    """Return times of a Poisson process, in seconds, ascending; the first is 0."""
    gaps = np.random.default_rng(seed).exponential(1 / fps, queries)
    return np.asarray(np.cumsum(gaps) - gaps[:1])


def figures_of(
    scenario: Scenario,
    begins_s: NDArray[np.float64],
    ends_s: NDArray[np.float64],
    *,
    target_fps: float | None = None,
    limit_s: float | None = None,
) -> ScenarioFigures:
    """Return the figures of a scenario.

    Args:
        scenario: which one.
        begins_s: when each frame arrived, or was to arrive; in the order of their numbers.
        ends_s: when its results were out, on the same clock.
        target_fps: of a server.
        limit_s: of a server.

    Raises:
        RankSliceError: there are too few frames.
    """
    frames = len(begins_s)
    refuse_too_few(scenario, frames)
    latencies = query_latencies(scenario, begins_s, ends_s)
    proven_s, discarded = None, 0
    if scenario.percentile is not None:
        proven_s, discarded = proven_latency(latencies, scenario.percentile)
    return ScenarioFigures(
        scenario,
        queries=len(latencies),
        frames=frames,
        throughput_fps=frames / float(ends_s.max() - begins_s.min()),
        mean_s=float(latencies.mean()),
        percentile_s=_percentile(latencies, scenario.percentile),
        proven_s=proven_s,
        discarded=discarded,
        target_fps=target_fps,
        limit_s=limit_s,
        overruns=0 if limit_s is None else int((latencies > limit_s).sum()),
    )


def query_latencies(
    scenario: Scenario, begins_s: NDArray[np.float64], ends_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the latency of each query: from its arrival until its last result, in seconds.

    Frames at the end that fill no query are left out.
    """
    samples = scenario.samples or len(begins_s)
    whole = len(begins_s) // samples * samples
    begins, ends = (each[:whole].reshape(-1, samples) for each in (begins_s, ends_s))
    return np.asarray(ends.max(axis=1) - begins.min(axis=1))


def _percentile(latencies: NDArray[np.float64], percentile: float | None) -> float | None:
    """Return the value at a percentile, as MLPerf's load generator takes it."""
    if percentile is None:
        return None
    return float(np.sort(latencies)[int(len(latencies) * percentile)])
