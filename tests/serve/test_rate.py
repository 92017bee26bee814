"""Results per second."""

from __future__ import annotations

import pickle

import pytest

from rankslice.serve.models import Rate


def test_the_first_second_is_not_divided_by_ten() -> None:
    rate = Rate()
    assert 0.0 == rate.per_second(100.0)
    rate.begin(100.0)
    for number in range(100):
        rate.count(100.0 + number / 100)
    assert 100.0 == pytest.approx(rate.per_second(101.0))
    assert 20.0 == pytest.approx(rate.per_second(105.0))


def test_only_the_last_ten_seconds_count() -> None:
    rate = Rate()
    rate.begin(0.0)
    for number in range(2000):
        rate.begin(number / 100)
        rate.count(number / 100)
    assert 100.0 == pytest.approx(rate.per_second(20.0), rel=0.03)
    assert 50.0 == pytest.approx(rate.per_second(25.0), rel=0.03)
    assert 0.0 == rate.per_second(31.0)


def test_its_memory_does_not_grow_with_the_events_that_nobody_asks_for() -> None:
    rate = Rate()
    for number in range(100_000):
        rate.count(number / 100)
    assert len(pickle.dumps(rate)) < 20_000
