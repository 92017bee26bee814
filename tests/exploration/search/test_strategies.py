"""Strategies: what is split, where and in which shares, and which is best in what."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from conv_networks import LAYERS, write_network
from explorations import candidate

from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.devices import kinds_and_devices
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import mapping_of, with_turns
from rankslice.exploration.problem.runtime_costs import DEFAULT_OVERHEADS
from rankslice.exploration.problem.split_problem import Splitter
from rankslice.exploration.results.candidates import (
    ALONE,
    IN_TURN,
    PIPELINE,
    Candidate,
    Strategy,
)
from rankslice.exploration.search.methods import SearchResult
from rankslice.exploration.search.seeds import planned_seeds
from rankslice.exploration.search.strategies import (
    SplitSearch,
    Stretch,
    compared,
    other_strategies,
)
from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import LayerPart
from rankslice.framework.platform import Board, Link, Platform
from rankslice.frontend.formats import read_model

CONV_MS, POOL_MS, CONNECTED_MS = 20.0, 1.0, 10.0


def boards(count: int, *, memory_mb: float | None = None, mbps: float = 1000) -> Platform:
    names = [f"b{number}" for number in range(1, count + 1)]
    return Platform(
        "boards.yaml",
        tuple(Board(n, n, cores=(0, 1), memory_mb=memory_mb, idle_w=2, busy_w=8) for n in names),
        Link(bandwidth_mbps=mbps, latency_ms=0.2),
    )


def layer_ms(name: str) -> float:
    return {"c": CONV_MS, "f": CONNECTED_MS, "s": 1.0, "p": POOL_MS}.get(name[0], 0.1)


def searched(
    folder: Path, platform: Platform, times_s: Sequence[float] | None = None, size: int = 32
) -> SplitSearch:
    """Return the search for a network on boards; by default convolutions take longest."""
    model = read_model(write_network(folder / "network.onnx", size))
    seconds = [layer_ms(name) / 1e3 for name in LAYERS] if times_s is None else times_s
    problem = make_problem(model.graph, platform, np.array([seconds]), overheads=DEFAULT_OVERHEADS)
    return SplitSearch(Splitter(problem, model, platform))


def best(candidates: Sequence[Candidate], objective: str, *strategies: str) -> float:
    own = [one for one in candidates if one.strategy in strategies]
    return min(map(OBJECTIVES[objective].cost_of, own))


def rows(ends: Sequence[int], shares: tuple[float, ...]) -> list[Stretch]:
    pairs = itertools.pairwise((-1, *ends))
    return [Stretch("rows", before + 1, end, shares) for before, end in pairs]


def names(numbers: Sequence[int]) -> list[str]:
    return [LAYERS[number] for number in numbers]


def test_rows_are_gathered_after_pools_and_where_tensors_are_small(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2))
    assert names(search.gathering_places()) == ["r2", "p2", "r3", "p3", "flat", "r4", "scores"]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.ci)])
def test_no_other_blocks_of_rows_have_a_lower_latency(tmp_path: Path, seed: int) -> None:
    """All ends of blocks are tried, on two and on three boards, with the shares of the search."""
    random = np.random.default_rng(seed)
    search = searched(tmp_path, boards(3), random.uniform(1e-3, 20e-3, len(LAYERS)).tolist())
    lowest = math.inf
    for devices in search.groups():
        for number in range(1, 5):
            for ends in itertools.combinations(search.gathering_places()[:4], number):
                for shares in {*search.shares(devices, 0, ends[-1])}:
                    mapping = search.mapping(devices, rows(ends, shares))
                    tried = search.evaluated(mapping)
                    assert tried is not None
                    lowest = min(lowest, OBJECTIVES["latency"].cost_of(tried))
    assert best([*search.candidates()], "latency", "rows") <= 1.01 * lowest


def test_several_blocks_compute_less_twice_than_one(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2), size=16)
    (devices,) = search.groups()
    place = LAYERS.index("p3")
    chosen = next(ends for ends in search.block_ends(devices) if LAYERS[ends[-1]] == "p3")
    assert len(chosen) > 1
    one, several = (
        search.evaluated(search.mapping(devices, rows(ends, (1.0, 1.0))))
        for ends in ([place], [LAYERS.index("p2"), place])
    )
    assert one is not None
    assert several is not None
    assert OBJECTIVES["latency"].cost_of(several) < OBJECTIVES["latency"].cost_of(one)


def test_shares_are_in_proportion_to_speed(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2))
    slower = replace(
        search.problem,
        spans_s=np.concatenate([search.problem.spans_s, 4 * search.problem.spans_s]),
        times_s=np.concatenate([search.problem.times_s, 4 * search.problem.times_s]),
        devices=(search.problem.devices[0], replace(search.problem.devices[1], kind=1)),
    )
    search = SplitSearch(replace(search.splitter, problem=slower))
    assert [(0, 1)] == [*search.groups()]
    assert (1.0, 0.25) == next(search.shares((0, 1), 0, 4))
    # The other order: the first device is the slower one.
    assert (0.25, 1.0) == next(search.shares((1, 0), 0, 4))


def test_a_board_behind_a_slow_link_gets_less(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2, mbps=50))
    by_speed, by_end = search.shares((0, 1), 0, 4, 32e3)
    assert (1.0, 1.0) == by_speed
    assert 0.3 < by_end[1] < 0.95
    # Sending takes longer than computing all on the first: no share makes both end at once.
    assert [(1.0, 1.0)] == [*search.shares((0, 1), 0, 4, 0.0, common_bytes=1e6)]


def test_large_fully_connected_layers_are_split_by_outputs(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2))
    assert names(search.connected()) == ["f4", "scores"]
    candidates = [*search.candidates()]
    items = [item for one in candidates for load in one.ranks for item in load.layers]
    by_outputs = {
        item.layers for item in items if isinstance(item, LayerPart) and item.by == "outputs"
    }
    assert {("f4",), ("f4..scores",), ("scores",)} == by_outputs
    saved = 0.4 * sum(search.problem.weight_bytes)  # nearly half of them
    assert best(candidates, "memory", "outputs") < best(candidates, "memory", "rows") - saved
    assert best(candidates, "latency", "rows and outputs") < best(candidates, "latency", "outputs")


def test_each_strategy_that_is_there_has_its_best_mappings(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2))
    others = other_strategies(search.splitter)
    split = {"rows", "outputs", "rows and outputs"}
    assert {*split, IN_TURN, PIPELINE, ALONE} == {one.strategy for one in others}
    assert best(others, "latency", "rows and outputs") < best(others, "latency", IN_TURN)
    assert best(others, "throughput", IN_TURN) < best(others, "throughput", "rows and outputs")


def test_an_input_that_nothing_reads_is_left_aside(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        " g (float[1,4,8,8] x, float[1] unused) => (float[1,4,8,8] z)"
        " { y = Relu (x) z = Sigmoid (y) }"
    )
    onnx.save(model, tmp_path / "two.onnx")
    read, platform = read_model(tmp_path / "two.onnx"), boards(2)
    problem = make_problem(read.graph, platform, np.full((1, 2), 1e-3))
    assert [1] == SplitSearch(Splitter(problem, read, platform)).gathering_places()


def test_ranks_of_other_strategies_share_no_cores(tmp_path: Path) -> None:
    platform = boards(2)
    keys = ("b1_cpu0-1", "b1_cpu0", "b2_cpu0-1")
    kinds, devices = kinds_and_devices(keys, platform)
    model = read_model(write_network(tmp_path / "network.onnx", 32))
    seconds = np.full((len(kinds), len(LAYERS)), 1e-3)
    problem = make_problem(model.graph, platform, seconds, accelerators=(kinds, devices))
    used = [{*one.mapping} for one in other_strategies(Splitter(problem, model, platform))]
    assert {"b1_cpu0-1", "b2_cpu0-1"} in used
    assert not any({"b1_cpu0-1", "b1_cpu0"} <= keys for keys in used)


def test_turns_of_slices_are_those_of_the_planner(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(3))
    first, *slower = search.problem.devices
    problem = replace(
        search.problem,
        spans_s=np.concatenate([search.problem.spans_s, 2 * search.problem.spans_s]),
        times_s=np.concatenate([search.problem.times_s, 2 * search.problem.times_s]),
        devices=(first, *(replace(device, kind=1) for device in slower)),
    )
    problem = with_turns(problem, 2)
    search = SplitSearch(replace(search.splitter, problem=problem))
    mappings = [one.mapping for one in search.whole()]
    planned = [mapping_of(problem, row.tolist()) for row in planned_seeds(problem)]
    assert any("|" in key for mapping in planned for key in mapping)
    assert all(mapping in mappings for mapping in planned)


def test_one_accelerator_has_nothing_to_share(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="can run on 'b1_cpu0-1' alone"):
        other_strategies(searched(tmp_path, boards(1)).splitter)


def test_what_cannot_be_split_is_refused_with_the_reason(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] z)'
        " { y = Softmax (x) z = Softmax (y) }"
    )
    onnx.save(model, tmp_path / "softmax.onnx")
    read, platform = read_model(tmp_path / "softmax.onnx"), boards(2)
    problem = make_problem(read.graph, platform, np.full((1, 2), 1e-3))
    with pytest.raises(
        RankSliceError, match=r"no layers of .* can be split: .* cannot be split by rows"
    ):
        other_strategies(Splitter(problem, read, platform))


def test_boards_without_memory_for_parts_are_the_reason_that_is_named(tmp_path: Path) -> None:
    search = searched(tmp_path, boards(2, memory_mb=0.001))
    with pytest.raises(RankSliceError, match="parts do not fit into the memory"):
        other_strategies(search.splitter)


def in_rows(one: Candidate, last: str = "pool5") -> Candidate:
    part = LayerPart((f"conv1..{last}",), "rows")
    return replace(one, ranks=tuple(replace(load, layers=(part,)) for load in one.ranks))


def compared_ones() -> tuple[SearchResult, tuple[Strategy, ...]]:
    keys = "edge01_cpu0-3", "edge02_cpu0-3"
    found = (
        candidate(1, 40, *keys, memory_mb=60, energy_j=0.5),
        candidate(2, 20, keys[0], memory_mb=90, energy_j=0.9),
    )
    split = in_rows(candidate(0, 30, *keys, memory_mb=80, energy_j=0.5))
    split = replace(split, figures=(replace(split.figures[0], latency_s=0.01),))
    slower = in_rows(candidate(0, 25, *keys, memory_mb=70, energy_j=0.6), "pool4")
    result = SearchResult(found, "exact", 100)
    return compared(result, [split, slower], ("throughput", "latency", "memory"))


def test_the_best_of_each_strategy_is_named_and_what_it_wins() -> None:
    result, strategies = compared_ones()
    assert [40, 30, 25, 20] == [c.figures[0].throughput_fps for c in result.candidates]
    assert (1, 2, 3, 4) == tuple(c.number for c in result.candidates)
    assert 102 == result.evaluations
    by_name = {strategy.name: strategy for strategy in strategies}
    assert [PIPELINE, "rows", ALONE] == [*by_name]
    assert {"throughput": 2, "energy": 2, "memory": 3, "latency": 2} == by_name["rows"].best
    # A pipeline needs as little energy as parts do: both win.
    assert {"throughput", "memory", "energy"} == {*by_name[PIPELINE].wins}
    assert {"latency", "energy"} == {*by_name["rows"].wins}
    assert () == by_name[ALONE].wins


def test_what_another_mapping_beats_in_all_objectives_is_not_on_the_front() -> None:
    result, _ = compared_ones()
    assert [True, True, False, False] == [one.on_front for one in result.candidates]


def test_a_strategy_that_the_search_found_is_not_found_again() -> None:
    found = (candidate(1, 40, "edge01_gpu", "edge02_gpu"),)
    others = [candidate(0, 30, "edge01_gpu", "edge01_cpu"), candidate(0, 20, "edge01_gpu")]
    result, strategies = compared(SearchResult(found, "exact", 1), others, ("throughput",))
    assert [40, 20] == [one.figures[0].throughput_fps for one in result.candidates]
    assert [PIPELINE, ALONE] == [strategy.name for strategy in strategies]


def test_a_split_mapping_that_does_not_run_is_a_failure() -> None:
    def attempt(one: Candidate) -> Candidate:
        raise RankSliceError("the engine refuses it")

    found = SearchResult((candidate(1, 40, "edge01_gpu"),), "exact", 1, tried=1)
    split = in_rows(candidate(0, 50, "edge01_gpu", "edge02_gpu"))
    result, strategies = compared(found, [split], ("throughput",), attempt)
    assert (2, ["the engine refuses it"]) == (result.tried, [f.reason for f in result.failures])
    assert [ALONE] == [strategy.name for strategy in strategies]
