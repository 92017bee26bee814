"""What slots take of memory, by every part that counts it, beside the rings of the runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from hypothesis import assume, given, strategies as st
from line_graphs import line_graph, opened
from placements import placements
from plans import job_of, planned, turn_weights, wire
from predicted_plans import predict_plan
from problems import platform, problem
from strategies import mapped_graphs

from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.wiring import CREDIT, pairs_within_boards
from rankslice.backend.runtime.sizes import slot_bytes
from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.devices import Team, kinds_and_devices
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.framework.graph import Graph
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Board
from rankslice.frontend.costs.costs import layer_costs
from rankslice.session.inspecting.rank_costs import rank_costs

TENSOR_BYTES = 16


def allocated(plan: Plan, window: int) -> dict[tuple[int, str], int]:
    """Return the bytes of the rings that the runtime makes, by rank and tensor."""
    job = job_of(plan)
    direct = pairs_within_boards(job)
    rings = {
        (rank.rank, spec.tensor.name): Ring(spec.tensor, spec.depth, spec.readers)
        for rank in plan.ranks
        for spec in wire(job, rank.rank, window, direct).rings
        if spec.tensor is not CREDIT and spec.home is None
    }
    return {at: sum(raw.nbytes for raw in ring.raw) for at, ring in rings.items()}


def half_opened(graph: Graph) -> Graph:
    """Return a graph in which the sizes of every other tensor are open."""
    names = {tensor.name for layer in graph.layers for tensor in (*layer.inputs, *layer.outputs)}
    return opened(graph, *sorted(names)[::2])


def by_rank(plan: Plan) -> list[int]:
    held = Counter[int]()
    for (rank, _), nbytes in allocated(plan, plan.job.window).items():
        held[rank] += nbytes
    return [held[rank.rank] for rank in plan.ranks]


def by_board(plan: Plan) -> dict[str, int]:
    held = Counter[str]()
    for rank, nbytes in zip(plan.ranks, by_rank(plan), strict=True):
        held[rank.board] += nbytes
    return dict(held)


def keys_of(boards: Sequence[int]) -> list[str]:
    """Return a device's key for each rank, by the numbers of their boards."""
    return [f"b{board}_cpu{number}" for number, board in enumerate(boards)]


def slots_alone(graph: Graph, boards: Sequence[int]) -> Problem:
    """Return a problem in which nothing but slots takes memory; a device for each board given."""
    cores = tuple(range(len(boards)))
    names = sorted({f"b{number}" for number in boards})
    described = platform(*(Board(name, name, cores=cores) for name in names))
    keys = keys_of(boards)
    kinds, _ = kinds_and_devices(keys, described)
    made = problem(graph, described, [[1.0] * len(explored_layers(graph))] * len(kinds), keys=keys)
    nothing = np.zeros(0, np.int64)
    return replace(
        made, weight_bytes=0 * made.weight_bytes, shared_weights=(), working_bytes=nothing
    )


def predicted(problem: Problem, plan: Plan) -> dict[str, float]:
    return {board.name: board.memory_bytes for board in predict_plan(problem, plan).boards}


def on_boards(
    graph: Graph,
    ranks: dict[str, int],
    boards: Sequence[int],
    weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> Plan:
    count = sum(len(weights.get(entry, (1,))) for entry in range(max(ranks.values()) + 1))
    return planned(graph, ranks, placements(*keys_of(boards[:count])), weights=weights)


BOARDS = st.one_of(
    st.just(range(9)), st.lists(st.integers(0, 2), min_size=9, max_size=9), st.just([0] * 9)
)
"""Numbers of the boards of ranks: each has its own, some have the same, all have one."""


@given(mapped_graphs(), BOARDS)
def test_inspect_tells_what_the_ranks_of_a_plan_allocate(
    drawn: tuple[Graph, dict[str, int]], boards: Sequence[int]
) -> None:
    graph, ranks = half_opened(drawn[0]), drawn[1]
    plan = on_boards(graph, ranks, boards)
    costs = rank_costs(graph, layer_costs(graph), plan)
    assert by_rank(plan) == [cost.slot_bytes for cost in costs]


@given(mapped_graphs(), BOARDS)
def test_the_cost_model_counts_what_the_runtime_allocates(
    drawn: tuple[Graph, dict[str, int]], boards: Sequence[int]
) -> None:
    graph, ranks = half_opened(drawn[0]), drawn[1]
    # The cost model lets a layer that reads nothing read an input; the partition, if it must.
    fed = {tensor.name for tensor in graph.inputs}
    for layer in graph.layers:
        if not fed.isdisjoint(tensor.name for tensor in layer.inputs):
            fed |= {tensor.name for tensor in layer.outputs}
    assume(all(fed & {t.name for t in layer.inputs} for layer in explored_layers(graph)))
    plan = on_boards(graph, ranks, boards)
    given_problem = slots_alone(graph, boards[: len(plan.ranks)])
    assert by_board(plan) == predicted(given_problem, plan)


@st.composite
def mapped_chains(draw: st.DrawFn) -> tuple[Graph, dict[str, int]]:
    """Draw chains in which tensors may skip layers, on any ranks: each run is a segment."""
    count = draw(st.integers(1, 10))
    reads = [{n, *draw(st.sets(st.integers(0, n), max_size=2))} for n in range(count)]
    lines = (
        f"l{n}: {' '.join(f't{each}' for each in sorted(read))} -> t{n + 1}"
        for n, read in enumerate(reads)
    )
    outputs = {count, *draw(st.sets(st.integers(1, count), max_size=2))}
    graph = line_graph("\n".join(lines), " ".join(f"t{n}" for n in sorted(outputs)), "t0")
    drawn = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    numbers = sorted({*drawn})
    return graph, {f"l{n}": numbers.index(rank) for n, rank in enumerate(drawn)}


@given(mapped_chains(), BOARDS)
def test_many_at_once_need_what_the_runtime_allocates(
    drawn: tuple[Graph, dict[str, int]], boards: Sequence[int]
) -> None:
    graph, ranks = half_opened(drawn[0]), drawn[1]
    plan = on_boards(graph, ranks, boards)
    given_problem = slots_alone(graph, boards[: len(plan.ranks)])
    costs = evaluate(given_problem, np.array([list(ranks.values())]), latency=False)
    assert [max(by_board(plan).values())] == costs.memory_bytes.tolist()


@given(mapped_chains(), st.data())
def test_ranks_in_turn_are_counted_with_what_the_runtime_allocates(
    drawn: tuple[Graph, dict[str, int]], data: st.DataObject
) -> None:
    graph, ranks = half_opened(drawn[0]), drawn[1]
    entries = max(ranks.values()) + 1
    weights = data.draw(turn_weights(entries))
    # Each has a board of its own: inside a board the runtime may choose another one that has slots.
    plan = on_boards(graph, ranks, range(12), weights)
    made = slots_alone(graph, range(len(plan.ranks)))
    numbers, teams, first = [], [], 0
    for entry in range(entries):
        own = weights.get(entry, (1,))
        devices = tuple(range(first, first + len(own)))
        numbers.append(first if len(own) == 1 else len(plan.ranks) + len(teams))
        teams += [Team(devices, tuple(own))] if len(own) > 1 else []
        first += len(own)
    made = replace(made, teams=tuple(teams))
    held = predict(made, [numbers[rank] for rank in ranks.values()]).boards
    assert in_rings(plan) == {each.name: each.memory_bytes for each in held}


def in_rings(plan: Plan) -> dict[str, int]:
    """Return the bytes of the rings that the runtime makes, by board; several for a tensor."""
    job = job_of(plan)
    held = Counter[str]()
    for rank in plan.ranks:
        for spec in wire(job, rank.rank, plan.job.window, pairs_within_boards(job)).rings:
            if spec.tensor is not CREDIT and spec.home is None:
                held[rank.board] += spec.depth * slot_bytes(spec.tensor)
    return dict(held)


U_NET = line_graph(
    """down0: x -> a
       down1: a -> b
       down2: b -> c
       down3: c -> d
       middle: d -> e
       up3: d e -> f
       up2: c f -> g
       up1: b g -> h
       up0: a h -> y""",
    outputs="y",
)


def test_a_rank_holds_a_tensor_that_skips_ranks_for_as_many_frames_as_are_between() -> None:
    ranks = {layer.name: number for number, layer in enumerate(U_NET.layers)}
    plan = on_boards(U_NET, ranks, range(9))
    rings = wire(job_of(plan), ranks["up0"], plan.job.window).rings
    received = {ring.tensor.name: ring.depth for ring in rings if ring.tensor is not CREDIT}
    assert {"a": 16, "h": 2, "y": 2} == received
    # Two slots for what comes from a neighbour and for what is sent; then 2 for each rank skipped.
    expected = [4, 4, 4, 4, 4, 4 + 4, 4 + 8, 4 + 12, 4 + 16]
    given_problem = slots_alone(U_NET, range(9))
    assert [TENSOR_BYTES * count for count in expected] == by_rank(plan)
    assert by_board(plan) == predicted(given_problem, plan)
    costs = evaluate(given_problem, np.arange(9)[np.newaxis])
    assert [TENSOR_BYTES * 20] == costs.memory_bytes.tolist()


def test_on_one_board_a_tensor_that_skips_ranks_is_kept_by_the_rank_that_makes_it() -> None:
    ranks = {layer.name: number for number, layer in enumerate(U_NET.layers)}
    plan = on_boards(U_NET, ranks, [0] * 9)
    # Two slots for input and output, three for what the next rank reads; a to d are read later too.
    expected = [2 + 17, 13, 9, 5, 3, 3, 3, 3, 2]
    assert [TENSOR_BYTES * count for count in expected] == by_rank(plan)
    given_problem = slots_alone(U_NET, [0] * 9)
    assert by_board(plan) == predicted(given_problem, plan)


def test_memory_for_tensors_that_skip_ranks_can_be_too_much_for_a_board() -> None:
    enough = slots_alone(U_NET, range(9))
    boards = tuple(replace(board, memory_bytes=TENSOR_BYTES * 19) for board in enough.boards)
    costs = evaluate(replace(enough, boards=boards), np.arange(9)[np.newaxis])
    assert [TENSOR_BYTES] == costs.excess_bytes.tolist()
