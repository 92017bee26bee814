"""The first frames of a job as text."""

from __future__ import annotations

from hypothesis import given
from line_graphs import line_graph
from placements import placements
from plans import planned, plans, routed

from rankslice.exploration.simulator.schedule import schedule
from rankslice.framework.plan import Plan

THREE = line_graph("a: x -> s\nb: s -> t\nc: t -> y", outputs="y")
ON_THREE_BOARDS = ("one_cpu0", "two_cpu0", "three_cpu0")


def chain(length: int) -> Plan:
    """Return a plan of ranks in a row."""
    tensors = ["x", *(f"t{rank}" for rank in range(1, length)), "y"]
    lines = (f"l{n}: {tensors[n]} -> {tensors[n + 1]}" for n in range(length))
    graph = line_graph("\n".join(lines), outputs="y")
    boards = placements(*(f"board{rank}_cpu0" for rank in range(length)))
    return planned(graph, {f"l{rank}": rank for rank in range(length)}, boards)


def grids(plan: Plan) -> str:
    """Return the schedule without its heading."""
    heading, grids = schedule(plan).split("\n\n", 1)
    assert heading.startswith("The first frames, if a segment takes one step")
    return grids


def test_a_chain_fills_and_then_takes_a_frame_per_step() -> None:
    expected = """\
  step  rank 0  rank 1  rank 2  out
     0  f0      .       .
     1  f1      f0      .
     2  f2      f1      f0      f0

All further steps are like step 2: 1 frame in each."""
    assert expected == grids(chain(3))


def test_a_rank_with_several_segments_takes_a_step_for_each() -> None:
    plan = planned(THREE, {"a": 0, "b": 1, "c": 0}, placements("board_cpu0", "board_cpu1"))
    expected = """\
  step  rank 0  rank 1  out
     0  0:f0    .
     1  0:f1    0:f0
     2  0:f2    0:f1
     3  1:f0    0:f2    f0
     4  1:f1    .       f1
     5  1:f2    .       f2

Steps 0 to 5 repeat: 3 frames in 6 steps."""
    assert expected == grids(plan)


def test_ranks_in_turn_take_as_many_steps_as_their_share_of_the_frames_allows() -> None:
    keys = (*ON_THREE_BOARDS, "four_cpu0")
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, placements(*keys), weights={1: (2, 1)})
    expected = """\
  step  rank 0  rank 1  rank 2  rank 3  out
     0  f0      .       .       .
     1  f1      f0      .       .
     2  f2      .       f1      f0      f0
     3  f3      f2      f1      .
     4  f4      f2      f1      .
     5  f5      f3      f4      f1      f1
     6  f6      f5      f4      f2      f2
     7  f7      f5      f4      f3      f3

Steps 5 to 7 repeat: 3 frames in 3 steps."""
    assert expected == grids(plan)


def test_each_of_two_routes_has_a_grid_of_the_ranks_that_compute_on_it() -> None:
    plan = routed(THREE, {"a": 0, "b": 0, "c": 0}, {"a": 0, "b": 1, "c": 1})
    expected = """\
On the usual route:

  step  rank 0  out
     0  f0      f0

All further steps are like step 0: 1 frame in each.

On the second route:

  step  rank 0  rank 1  out
     0  f0      .
     1  f1      f0      f0

All further steps are like step 1: 1 frame in each."""
    assert expected == grids(plan)


def test_what_is_too_wide_or_too_long_is_left_out_and_said() -> None:
    lines = grids(chain(32)).splitlines()
    assert 88 >= max(map(len, lines))
    assert "  (ranks 9 to 31 are left out)" in lines
    assert "  ..." in lines
    assert "All further steps are like step 31: 1 frame in each." == lines[-1]
    assert 29 == len(lines)


@given(plans())
def test_the_schedule_of_any_plan_comes_to_steps_that_repeat_and_is_plain_text(plan: Plan) -> None:
    text = schedule(plan)
    assert text == schedule(plan)
    assert text.replace("\n", "").isprintable()
    assert text.isascii()
    assert not {'"', "\\"} & set(text)
    assert len(plan.routes) == text.count("further steps") + text.count("repeat: ")
