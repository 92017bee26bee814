"""The scenarios of MLPerf's inference benchmark, by its own definitions.

Reddi et al., "MLPerf Inference Benchmark", ISCA 2020, section III-C, and the current rules: a
percentile p counts with a confidence of 99 %, by early stopping. A query is an overrun if its
latency exceeds a limit. Were more than a share 1 - p of all queries overruns, then n independent
ones would have t overruns or fewer with a probability of at most the binomial distribution's
P(t; n, 1 - p). Where that is below 1 - confidence, the percentile is within the limit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import digits

_CONFIDENCE = 0.99
_CONFIDENT = f"with {100 * _CONFIDENCE:g} % confidence"
_MAX_QUERIES = 1 << 24
"""As many as anybody needs to prove a percentile."""


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
    def min_queries(self) -> int:
        """How many it takes: those that prove the percentile although one of them exceeds it."""
        return 1 if self.percentile is None else queries_needed(self.percentile, 1)

    @property
    def min_frames(self) -> int:
        return self.min_queries * max(1, self.samples)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
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
            return f"{share} <= {digits(proven_ms, 4)} ms {_CONFIDENT}"
        limit = f"{share} <= {1e3 * self.limit_s:g} ms"
        verdict = f"{limit} {_CONFIDENT}" if self.is_within_limit else f"{limit} is not shown"
        allowed = self.allowed_overruns
        return f"{verdict}: {self.overruns} of {self.queries} queries took longer, {allowed} may"


def queries_needed(percentile: float, overruns: int) -> int:
    """Return how many queries prove a percentile, a share, although some of them are overruns.

    For 99 % and one overrun these are 662, for 90 % 64.
    """

    def is_proven(queries: int) -> bool:
        probability = _distribution(queries, percentile, overruns)[-1]
        return bool(probability <= 1 - _CONFIDENCE)

    return bisect_left(range(_MAX_QUERIES), True, lo=overruns + 1, key=is_proven)


def overruns_allowed(percentile: float, queries: int) -> int:
    """Return how many of some queries may be overruns; -1: there are too few queries."""
    return int(np.searchsorted(_distribution(queries, percentile), 1 - _CONFIDENCE, "right")) - 1


def proven_latency(latencies: NDArray[np.float64], percentile: float) -> tuple[float, int]:
    """Return the limit within which a percentile is, and how many higher latencies there are.

    As MLPerf has it, a latency that equals the limit counts as an overrun, and at least one is
    there. There must be as many latencies, in any order, as :func:`queries_needed` says for one
    overrun.
    """
    allowed = overruns_allowed(percentile, len(latencies))
    return float(np.sort(latencies)[-allowed]), allowed - 1


def _distribution(queries: int, percentile: float, most: int | None = None) -> NDArray[np.float64]:
    """Return the binomial distribution of the number of overruns, cumulated, up to ``most``."""
    count = np.arange(1, (queries if most is None else min(most, queries)) + 1)
    odds = np.log(1 - percentile) - np.log(percentile)
    steps = np.log(queries + 1 - count) - np.log(count) + odds
    logarithms = np.concatenate([[0.0], np.cumsum(steps)]) + queries * np.log(percentile)
    return np.asarray(np.cumsum(np.exp(logarithms)))


def refuse_too_few(scenario: Scenario, frames: int) -> None:
    """Raise :class:`RankSliceError` with the number of frames that a scenario needs."""
    if frames >= scenario.min_frames:
        return
    if scenario.percentile is None:
        raise RankSliceError(Mistake("--frames", "is 0", "expected 1 or more"))
    queries, needed = scenario.min_queries, scenario.min_frames
    of_queries = f" ({queries} queries of {scenario.samples})" if scenario.samples > 1 else ""
    share = f"p{100 * scenario.percentile:g}"
    found = f"{frames} are too few to determine {share} {_CONFIDENT}"
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

    A query lasts from its arrival until its last result; frames at the end that fill no query are
    left out of the latencies.

    Args:
        begins_s: when each frame arrived, or was to arrive; in the order of their numbers.
        ends_s: when its results were out, on the same clock.

    Raises:
        RankSliceError: there are too few frames.
    """
    frames = len(begins_s)
    refuse_too_few(scenario, frames)
    samples = scenario.samples or frames
    begins, ends = (
        times[: frames // samples * samples].reshape(-1, samples) for times in (begins_s, ends_s)
    )
    latencies = np.asarray(ends.max(axis=1) - begins.min(axis=1))
    percentile_s, proven_s, discarded = None, None, 0
    if scenario.percentile is not None:
        # The load generator rounds the place down, too.
        percentile_s = float(np.sort(latencies)[int(len(latencies) * scenario.percentile)])
        proven_s, discarded = proven_latency(latencies, scenario.percentile)
    return ScenarioFigures(
        scenario,
        queries=len(latencies),
        frames=frames,
        throughput_fps=frames / float(ends_s.max() - begins_s.min()),
        mean_s=float(latencies.mean()),
        percentile_s=percentile_s,
        proven_s=proven_s,
        discarded=discarded,
        target_fps=target_fps,
        limit_s=limit_s,
        overruns=0 if limit_s is None else int((latencies > limit_s).sum()),
    )
