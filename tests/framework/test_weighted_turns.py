"""Turns, compared with the frames themselves, counted one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import count, islice, product

import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.job import ALL, MAX_TURNS, Turns
from rankslice.framework.weighted_turns import by_weights, weights_for


@st.composite
def some_turns(draw: st.DrawFn) -> Turns:
    period = draw(st.integers(1, 9))
    positions = draw(st.sets(st.integers(0, period - 1), min_size=1))
    return Turns(period, tuple(sorted(positions)))


WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def frames(turns: Turns, total: int) -> list[int]:
    return [frame for frame in range(total) if frame % turns.period in turns.positions]


def test_by_default_all_frames_are_handled() -> None:
    assert list(range(7)) == frames(ALL, 7)
    assert (1, 1, "all") == (ALL.share, ALL.levels, str(ALL))


def test_turns_are_told_as_positions_of_a_period() -> None:
    assert "0, 2 of 3" == str(Turns(3, (0, 2)))
    assert "1 of 2" == str(Turns(2, (1,)))


def test_of_many_positions_the_number_is_told() -> None:
    most, rest = by_weights([99, 1])
    assert ("99 of every 100", "50 of 100") == (str(most), str(rest))
    assert "0, 1, 2, 3, 4, 5, 6, 7 of 9" == str(Turns(9, tuple(range(8))))


@given(some_turns())
def test_the_share_is_that_of_the_frames(turns: Turns) -> None:
    assert Fraction(len(frames(turns, 5 * turns.period)), 5 * turns.period) == turns.share


@given(some_turns(), some_turns())
def test_what_two_share_are_the_frames_of_both(one: Turns, other: Turns) -> None:
    total = math.lcm(one.period, other.period)
    both = set(frames(one, total)) & set(frames(other, total))
    assert Fraction(len(both), total) == one.shared_with(other) == other.shared_with(one)


def latest(turns: Turns, rounds: int) -> Fraction:
    """Return how long a frame stays where each takes as long as the frames come apart on average.

    Frame f of the stream comes at time f.
    """
    free = longest = Fraction(0)
    for frame in frames(turns, rounds * turns.period):
        free = max(free, Fraction(frame)) + 1 / turns.share
        longest = max(longest, free - frame)
    return longest


@given(some_turns())
def test_levels_are_the_steps_until_a_frame_is_done_at_the_latest(turns: Turns) -> None:
    assert math.ceil(latest(turns, 9)) == turns.levels


@pytest.mark.parametrize(
    ("turns", "levels"),
    [
        (Turns(2, (1,)), 2),
        (Turns(8, (5,)), 8),
        (Turns(3, (0, 2)), 2),
        (Turns(3, (0, 1)), 2),
        (Turns(4, (0, 1)), 3),
        (Turns(10, (0, 1, 2, 3, 4)), 6),
        (Turns(100, tuple(range(1, 100))), 2),
    ],
    ids=str,
)
def test_frames_that_follow_each_other_at_once_take_more_levels(turns: Turns, levels: int) -> None:
    assert levels == turns.levels


@given(WEIGHTS)
def test_each_frame_is_handled_once(weights: list[int]) -> None:
    turns = by_weights(weights)
    (period,) = {rank.period for rank in turns}
    assert list(range(period)) == sorted(place for rank in turns for place in rank.positions)


@given(WEIGHTS)
def test_shares_are_in_proportion_to_the_weights(weights: list[int]) -> None:
    expected = [Fraction(weight, sum(weights)) for weight in weights]
    assert expected == [turns.share for turns in by_weights(weights)]


@given(WEIGHTS)
def test_the_period_is_as_short_as_the_weights_allow(weights: list[int]) -> None:
    assert sum(weights) // math.gcd(*weights) == by_weights(weights)[0].period


@given(WEIGHTS, st.integers(1, 9))
def test_what_weights_have_in_common_changes_nothing(weights: list[int], factor: int) -> None:
    assert by_weights(weights) == by_weights([factor * weight for weight in weights])


def neediest(weights: Sequence[int]) -> list[int]:
    """Return who handles each frame, if it is always the one who is furthest behind its share.

    It is who with the next frame has had least, compared with its share of the frames by then.
    """
    had = [0] * len(weights)
    handlers = []
    for frame in islice(count(1), sum(weights)):
        behind = [Fraction(w * frame, sum(weights)) - h for w, h in zip(weights, had, strict=True)]
        handlers.append(behind.index(max(behind)))
        had[handlers[-1]] += 1
    return handlers


@given(WEIGHTS)
def test_a_frame_goes_to_the_first_of_those_who_are_furthest_behind(weights: list[int]) -> None:
    expected = neediest([weight // math.gcd(*weights) for weight in weights])
    turns = by_weights(weights)
    handlers = [
        n for place in range(len(expected)) for n, t in enumerate(turns) if place in t.positions
    ]
    assert expected == handlers


@given(st.tuples(st.integers(1, 50), st.integers(1, 50)))
def test_two_are_never_a_whole_frame_away_from_their_shares(weights: tuple[int, int]) -> None:
    for weight, turns in zip(weights, by_weights(weights), strict=True):
        for total in range(turns.period):
            assert abs(len(frames(turns, total)) - Fraction(weight * total, sum(weights))) < 1


def test_equal_ones_come_in_their_order() -> None:
    assert (Turns(3, (0,)), Turns(3, (1,)), Turns(3, (2,))) == by_weights([7, 7, 7])


def test_one_alone_handles_all_frames_whatever_its_weight() -> None:
    assert (ALL,) == by_weights([5])


def test_unequal_ones_are_mixed_as_in_smooth_weighted_round_robin() -> None:
    # nginx's own example: a a b a c a a.
    assert ((0, 1, 3, 5, 6), (2,), (4,)) == tuple(t.positions for t in by_weights([5, 1, 1]))


def test_two_groups_with_the_longest_periods_have_few_frames_in_common() -> None:
    assert 9900 == math.lcm(MAX_TURNS, MAX_TURNS - 1)


@pytest.mark.parametrize(
    ("times", "weights"),
    [
        ([30, 60], (2, 1)),
        ([60, 30], (1, 2)),
        ([30, 30.5], (1, 1)),
        ([10, 20, 30], (6, 3, 2)),
        ([20, 30], (3, 2)),
        ([1, 1000], (11, 1)),
        ([0, 0], (1, 1)),
        ([1] * 20, (1,) * 20),
        ([1] * 19 + [2], (2,) * 19 + (1,)),
        ([1] * MAX_TURNS, (1,) * MAX_TURNS),
    ],
)
def test_weights_are_in_proportion_to_rates(times: list[float], weights: tuple[int, ...]) -> None:
    assert weights == weights_for(times)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=3))
def test_no_other_weights_of_that_size_give_a_rate_that_is_much_higher(times: list[int]) -> None:
    def interval(weights: Sequence[int]) -> float:
        return max(map(math.prod, zip(weights, times, strict=True))) / sum(weights)

    others = product(range(1, 12), repeat=len(times))
    best = min(interval(weights) for weights in others if sum(weights) <= 12)
    assert interval(weights_for(times)) <= 1.02 * best
