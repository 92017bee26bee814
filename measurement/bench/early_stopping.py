"""How many queries prove a percentile of latency: the early stopping of MLPerf's inference rules.

A query is an overrun if its latency exceeds a limit. Were more than a share 1 - p of all queries
overruns, then n independent ones would have t overruns or fewer with a probability of at most the
binomial distribution's P(t; n, 1 - p). Where that is below 1 - confidence, the percentile p is
within the limit with that confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.99


def queries_needed(percentile: float, overruns: int, confidence: float = CONFIDENCE) -> int:
    """Return how many queries prove a percentile although some of them are overruns.

    For 99 % and one overrun these are 662, for 90 % 64.

    Args:
        percentile: as a share, 0.99 say.
        overruns: how many queries exceed the limit.
        confidence: as a share.
    """
    least, most = overruns, overruns + 1
    while _probability(most, overruns, percentile) > 1 - confidence:
        least, most = most, 2 * most
    while most - least > 1:
        middle = (least + most) // 2
        if _probability(middle, overruns, percentile) > 1 - confidence:
            least = middle
        else:
            most = middle
    return most


def overruns_allowed(percentile: float, queries: int, confidence: float = CONFIDENCE) -> int:
    """Return how many of some queries may be overruns; -1: there are too few queries."""
    return int(np.searchsorted(_distribution(queries, percentile), 1 - confidence, "right")) - 1


def proven_latency(
    latencies: NDArray[np.float64], percentile: float, confidence: float = CONFIDENCE
) -> tuple[float, int]:
    """Return the limit within which a percentile is, and how many higher latencies there are.

    As MLPerf has it, a latency that equals the limit counts as an overrun, and one is there at
    least.

    Args:
        latencies: of all queries, in any order.
        percentile: as a share.
        confidence: as a share.

    Raises:
        ValueError: there are fewer latencies than :func:`queries_needed` for one overrun.
    """
    allowed = overruns_allowed(percentile, len(latencies), confidence)
    if allowed < 1:
        raise ValueError(f"{len(latencies)} queries prove no percentile")
    return float(np.sort(latencies)[-allowed]), allowed - 1


def _probability(queries: int, overruns: int, percentile: float) -> float:
    return float(_distribution(queries, percentile, overruns)[-1])


def _distribution(queries: int, percentile: float, most: int | None = None) -> NDArray[np.float64]:
    """Return the binomial distribution of the number of overruns, cumulated, up to ``most``."""
    count = np.arange(1, (queries if most is None else min(most, queries)) + 1)
    odds = np.log(1 - percentile) - np.log(percentile)
    steps = np.log(queries + 1 - count) - np.log(count) + odds
    logarithms = np.concatenate([[0.0], np.cumsum(steps)]) + queries * np.log(percentile)
    return np.asarray(np.cumsum(np.exp(logarithms)))
