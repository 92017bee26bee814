"""Turns and steps, compared with the frames themselves, counted one by one."""

from __future__ import annotations

import math
from itertools import islice

from hypothesis import given, strategies as st

from rankslice.backend.runtime.job import ALL, EACH, Steps, Turns


@st.composite
def some_turns(draw: st.DrawFn) -> Turns:
    period = draw(st.integers(1, 9))
    positions = draw(st.sets(st.integers(0, period - 1), min_size=1))
    return Turns(period, tuple(sorted(positions)))


def frames(turns: Turns, total: int) -> list[int]:
    return [frame for frame in range(total) if frame % turns.period in turns.positions]


def taken(steps: Steps, total: int) -> list[int]:
    """Return which of so many frames of a ring a reader takes, going from one to the next."""
    indices = [steps.first]
    while indices[-1] < total:
        indices.append(steps.after(indices[-1]))
    return indices[:-1]


@given(some_turns(), st.integers(0, 40))
def test_frames_are_counted_from_0(turns: Turns, index: int) -> None:
    assert list(islice(frames(turns, 9 * 41), index, index + 1)) == [turns.frame(index)]


@given(some_turns(), some_turns())
def test_the_common_frames_are_those_of_both(one: Turns, other: Turns) -> None:
    total = 3 * math.lcm(one.period, other.period)
    expected = sorted({*frames(one, total)} & {*frames(other, total)})
    assert expected == frames(one.common(other), total)


def test_there_may_be_no_common_frame() -> None:
    assert () == Turns(2, (0,)).common(Turns(4, (1, 3))).positions


@given(some_turns())
def test_all_frames_leave_the_others_as_they_are(turns: Turns) -> None:
    assert turns == turns.common(ALL)
    assert turns == ALL.common(turns)


@given(some_turns(), some_turns())
def test_one_covers_another_if_it_has_all_its_frames(one: Turns, other: Turns) -> None:
    total = math.lcm(one.period, other.period)
    assert ({*frames(other, total)} <= {*frames(one, total)}) == one.covers(other)


@given(some_turns(), some_turns())
def test_each_of_two_covers_what_they_have_in_common(one: Turns, other: Turns) -> None:
    common = one.common(other)
    assert one.covers(common)
    assert other.covers(common)


@given(some_turns(), st.integers(1, 30))
def test_the_most_frames_in_a_row_are_those_of_the_best_begin(turns: Turns, row: int) -> None:
    handled = {*frames(turns, 4 * 9 + 30)}
    counts = (sum(begin + n in handled for n in range(row)) for begin in range(turns.period))
    assert max(counts) == turns.most_in(row)


@given(some_turns(), some_turns())
def test_steps_lead_to_the_frames_that_are_taken(ring: Turns, reader: Turns) -> None:
    common = ring.common(reader)
    if common.positions:
        steps = common.steps_in(ring)
        total = 3 * math.lcm(ring.period, reader.period)
        written = frames(ring, total)
        wanted = {*frames(reader, total)}
        expected = [index for index, frame in enumerate(written) if frame in wanted]
        assert expected == taken(steps, len(written))
        assert expected == [index for index in range(len(written)) if steps.takes(index)]


@given(some_turns())
def test_who_has_the_turns_of_the_ring_takes_each_frame(turns: Turns) -> None:
    assert EACH == turns.steps_in(turns)
    assert list(range(9)) == taken(EACH, 9)


@given(some_turns())
def test_steps_among_all_frames_are_the_numbers_of_the_stream(turns: Turns) -> None:
    total = 4 * turns.period
    assert frames(turns, total) == taken(turns.steps_in(ALL), total)
