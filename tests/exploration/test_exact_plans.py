"""What the exact planner expects of its plans, and what the cost model makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_graphs import line_graph
from problems import board, platform, problem

from rankslice.exploration.evaluation import evaluate
from rankslice.exploration.exact_plans import ExactPlanner, difference
from rankslice.exploration.problem import (
    NO_OVERHEADS,
    BoardCosts,
    LayerTensor,
    Overheads,
    Place,
    Problem,
    SummedTimes,
)
from rankslice.exploration.search import Wanted, search
from rankslice.framework.platform import Link


def chain(
    times_s: list[list[float]],
    nbytes: list[float],
    boards: list[int],
    bandwidth: list[list[float]],
    overheads: Overheads = NO_OVERHEADS,
    skips: tuple[tuple[int, int, float], ...] = (),
) -> Problem:
    """Return the problem of a chain of layers.

    Args:
        times_s: of each kind, a row.
        nbytes: what each layer but the last hands to the next one.
        boards: of each place; places take kinds in turn.
        bandwidth: bytes per second between two boards.
        overheads: what the runtime takes.
        skips: tensors of a layer that a later layer reads: maker, reader, bytes.
    """
    layers = len(times_s[0])
    tensors = [LayerTensor("in", -1, 1.0, (0,), False)]
    tensors += [LayerTensor(f"t{n}", n, nbytes[n], (n + 1,), False) for n in range(layers - 1)]
    tensors += [LayerTensor(f"s{a}", a, size, (b,), False) for a, b, size in skips]
    tensors += [LayerTensor("out", layers - 1, 1.0, (), True)]
    table = np.array(times_s)
    count = max(boards) + 1
    return Problem(
        layers=tuple(f"l{n}" for n in range(layers)),
        places=tuple(
            Place(f"b{board}_cpu{n}", board, n % len(times_s)) for n, board in enumerate(boards)
        ),
        boards=tuple(BoardCosts(f"b{n}") for n in range(count)),
        times_s=table,
        spans=SummedTimes(table),
        weight_bytes=np.ones(layers, np.int64),
        tensors=tuple(tensors),
        bandwidth_bytes_s=np.array(bandwidth),
        latency_s=np.zeros((count, count)),
        overheads=overheads,
    )


@st.composite
def chains_on_boards(draw: st.DrawFn) -> Problem:
    """Draw chains without skips, on boards of one place each."""
    layers, kinds, boards = (draw(st.integers(*ends)) for ends in ((1, 8), (1, 3), (1, 4)))
    seconds, size = st.floats(1e-4, 1e-1), st.floats(1e3, 1e6)
    rows = st.lists(seconds, min_size=layers, max_size=layers)
    links = np.ones((boards, boards))
    for one in range(boards):
        for other in range(one):
            links[one, other] = links[other, one] = draw(st.floats(1e6, 1e9))
    return chain(
        draw(st.lists(rows, min_size=kinds, max_size=kinds)),
        draw(st.lists(size, min_size=layers - 1, max_size=layers - 1)),
        list(range(boards)),
        links.tolist(),
        draw(st.sampled_from([NO_OVERHEADS, Overheads(2e-4, 5e-5, "given", 4e-4, 3e-6)])),
    )


@given(chains_on_boards())
def test_of_chains_on_boards_of_one_place_planner_and_cost_model_tell_the_same_rate(
    problem: Problem,
) -> None:
    planned = ExactPlanner(problem).plan(range(len(problem.places)))
    assert planned is not None
    counted = evaluate(problem, planned.assignment[np.newaxis]).bottleneck_s[0]
    assert counted == pytest.approx(planned.bottleneck_s, rel=1e-9)
    assert "" == difference(problem)


THREE = [[1.0, 1.0, 1.0]]
EQUAL = np.full((3, 3), 1e6).tolist()


def test_a_tensor_that_skips_a_stage_makes_planner_and_cost_model_differ_and_that_is_said() -> None:
    # The planner sends both tensors over each link; they leave the first board together, too.
    assert "" == difference(chain(THREE, [8e5, 8e5], [0, 1, 2], EQUAL, skips=((0, 2, 8e5),)))
    slower = np.array(EQUAL)
    slower[1, 2] = slower[2, 1] = 5e5
    told = difference(chain(THREE, [8e5, 8e5], [0, 1, 2], slower.tolist(), skips=((0, 2, 8e5),)))
    assert told.startswith("Of its fastest plan the exact planner expects ")
    assert "All figures here are the cost model's." in told


def test_two_stages_of_a_board_that_send_over_its_cable_make_them_differ() -> None:
    # Kind 0 runs the first and the third layer well, kind 1 the second: there and back again.
    times = [[1.0, 9.0, 1.0, 9.0], [9.0, 1.0, 9.0, 1.0]]
    problem = chain(times, [9e5, 9e5, 9e5], [0, 1, 0, 1], np.full((2, 2), 1e6).tolist())
    planned = ExactPlanner(problem).plan(range(4))
    assert planned is not None
    counted = evaluate(problem, planned.assignment[np.newaxis]).bottleneck_s[0]
    assert counted > 1.01 * planned.bottleneck_s
    share = 100 * (1 - planned.bottleneck_s / counted)
    assert f"{share:.1f} % fewer: the planner does not add up" in difference(problem)


def test_each_tensor_that_a_slice_takes_or_gives_costs_a_message() -> None:
    overheads = Overheads(0.0, 1e-3, "given")
    problem = chain(THREE, [1.0, 1.0], [0, 1, 2], EQUAL, overheads, skips=((0, 2, 1.0),))
    # Each layer alone: one in the middle takes one message and gives one, those at the ends have
    # the message of the tensor that skips it, too.
    planned = ExactPlanner(problem).plan(range(3))
    assert planned is not None
    assert planned.bottleneck_s == pytest.approx(1.002)


def test_the_exact_method_says_where_the_cost_model_counts_otherwise() -> None:
    graph = line_graph("a: x -> t\nb: t -> u\nc: u -> v\nd: v -> y", outputs="y")
    link = Link(bandwidth_mbps=16 * 8 / 0.9e6, latency_ms=0.0)  # a tensor takes 0.9 s
    boards = platform(board("edge01"), board("edge02", gpus=2), link=link)
    keys = ["edge01_cpu0", "edge02_gpu", "edge01_cpu1", "edge02_gpu1"]
    cpu, gpu = [1.0, 9.0, 1.0, 9.0], [9.0, 1.0, 9.0, 1.0]
    found = problem(graph, boards, [cpu, gpu, cpu], keys=keys)
    (note,) = search(found, ("throughput",), Wanted()).notes
    assert "expects 1 frames/s, the cost model 0.5556, 44.4 % fewer" in note
    assert () == search(found, ("throughput",), Wanted(method="exhaustive")).notes
