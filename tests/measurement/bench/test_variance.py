"""Where the variance comes from, in latencies made with known parts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.measurement.bench.variance import explanation, variance_parts

STARTS, BLOCKS, SIZE = 30, 10, 50


def made(
    *,
    frames: float = 0.0,
    machine: float = 0.0,
    starts: float = 0.0,
    drift: float = 0.0,
    seed: int = 1,
) -> list[NDArray[np.int64]]:
    """Return latencies around 10 ms with these standard deviations, in microseconds."""
    draw = np.random.default_rng(seed)
    values = 1e7 + 1e3 * (
        frames * draw.standard_normal((STARTS, BLOCKS, SIZE))
        + machine * draw.standard_normal((STARTS, BLOCKS, 1))
        + starts * draw.standard_normal((STARTS, 1, 1))
        + np.linspace(0, drift, STARTS)[:, None, None]
    )
    return list(values.reshape(STARTS, -1).round().astype(np.int64))


@pytest.mark.parametrize("level", ["frames", "machine", "starts"])
def test_the_level_that_varies_alone_has_all_of_the_variance(level: str) -> None:
    parts = variance_parts(made(**{level: 300.0}))
    assert parts is not None
    assert parts.shares()[level] > 0.95
    assert pytest.approx(300e3, rel=0.3) == parts.total**0.5


def test_parts_are_found_beside_each_other() -> None:
    parts = [variance_parts(made(frames=300, machine=200, starts=100, seed=n)) for n in range(20)]
    shares = [each.shares() for each in parts if each is not None]
    true = {"frames": 9 / 14, "machine": 4 / 14, "starts": 1 / 14}
    for level, share in true.items():
        assert pytest.approx(share, abs=0.03) == np.mean([each[level] for each in shares])


def test_a_drift_from_start_to_start_is_the_machines() -> None:
    parts = variance_parts(made(frames=100, drift=1000))
    assert parts is not None
    assert parts.shares()["machine"] > 0.8
    assert pytest.approx(1e6, rel=0.1) == parts.drift_ns
    assert "rises by 0.998 ms from the first start to the last" in explanation(parts)[1]
    steady = variance_parts(made(frames=100, starts=100))
    assert steady is not None
    assert 0 == steady.drift_ns


def test_chance_is_taken_for_a_drift_no_more_often_than_in_one_of_twenty() -> None:
    parts = [variance_parts(made(frames=10, starts=100, seed=n)) for n in range(200)]
    assert sum(each is not None and each.drift_ns != 0 for each in parts) <= 20  # of 10 on average


def test_it_says_what_narrows_the_mean() -> None:
    frames = explanation(variance_parts(made(frames=300)))  # type: ignore[arg-type]
    assert frames[0].startswith(
        "Of the variance of the latency, 100 % is between consecutive frames"
    )
    assert "neither more frames nor more starts are needed" in frames[-1]
    starts = explanation(variance_parts(made(starts=3000)))  # type: ignore[arg-type]
    assert "more starts help, more frames of each do not" in starts[-1]
    few = [each[:100] for each in made(frames=9000)[:2]]
    assert "more frames of each help" in explanation(variance_parts(few))[-1]  # type: ignore[arg-type]


def test_too_little_tells_nothing_and_no_variance_divides_nothing() -> None:
    assert variance_parts(made(frames=100)[:1]) is None
    assert variance_parts([each[:9] for each in made(frames=100)]) is None
    parts = variance_parts(made())
    assert parts is not None
    assert ["The latencies of all frames are equal."] == explanation(parts)
