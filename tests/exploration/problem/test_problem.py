from __future__ import annotations

import json
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, strategies as st
from line_graphs import line_graph
from problems import CHAIN, GIGABIT, board, platform, problem
from strategies import random_graphs

from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.devices import default_keys, kinds_and_devices
from rankslice.exploration.problem.make_problem import make_problem, profiled_problem
from rankslice.exploration.problem.problem import Problem, explored_layers, mapping_of
from rankslice.exploration.problem.runtime_costs import UNKNOWN_LINK, WAKE_UP_S, LinkSpeeds
from rankslice.exploration.times.span_times import summed_spans
from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Bond
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.framework.profile import (
    Core,
    MeasuredBoard,
    Profile,
    ProfiledKind,
    ProfiledModel,
    Span,
)
from rankslice.framework.specs.assign import assign


def devices(*keys, boards=None):
    return kinds_and_devices(keys, boards or platform())


def test_the_devices_of_a_platform_are_its_whole_cpus_gpus_and_npus():
    npu = Board("edge02", "edge02", cores=(0, 1, 2), npus=(Accelerator("litert"),))
    expected = ("edge01_cpu0-1", "edge01_gpu", "edge01_gpu1", "edge02_cpu0-2", "edge02_npu")
    assert expected == default_keys(platform(board("edge01", gpus=2), npu))


def test_each_core_can_be_a_device():
    assert ("edge01_cpu0", "edge01_cpu1") == default_keys(platform(board("edge01")), per_core=True)


def test_a_device_is_one_accelerator_not_several_that_take_turns():
    with pytest.raises(RankSliceError) as caught:
        devices("edge01_gpu", "edge01_cpu0|edge01_cpu1", "edge02_cpu0-1*2")
    told = [line.partition(";")[0] for line in str(caught.value).splitlines()]
    expected = "it is the key of ranks that take turns"
    keys = ("edge01_cpu0|edge01_cpu1", "edge02_cpu0-1*2")
    assert [f"{platform().name}: {key}: {expected}" for key in keys] == told


def test_equal_boards_share_a_kind():
    kinds, found = devices("edge01_cpu0-1", "edge02_cpu0-1")
    assert ["edge01_cpu0-1"] == [kind.key for kind in kinds]
    assert [(0, 0), (1, 0)] == [(device.board, device.kind) for device in found]


def test_boards_that_are_described_differently_do_not():
    other = replace(board("edge02"), memory_mb=50.0)
    kinds, _ = devices("edge01_cpu0-1", "edge02_cpu0-1", boards=platform(board("edge01"), other))
    assert 2 == len(kinds)


def test_other_cores_are_another_kind_as_boards_can_have_cores_of_several_speeds():
    assert 2 == len(devices("edge01_cpu0", "edge01_cpu1")[0])


def test_cores_that_are_known_to_be_alike_are_one_kind():
    keys = ("edge01_cpu0", "edge01_cpu1", "edge02_cpu0", "edge02_cpu1")
    for alike, expected in {
        (): [0, 1, 0, 1],
        (("edge01_cpu0", "edge01_cpu1"),): [0, 0, 0, 0],  # as boards of one description are
        (("edge01_cpu1", "edge02_cpu1"),): [0, 1, 0, 1],
    }.items():
        _, found = kinds_and_devices(keys, platform(), alike=alike)
        assert expected == [device.kind for device in found]


def test_on_this_machine_single_cores_are_alike():
    local = Platform("local", (Board("local", "localhost", cores=(0, 1)),))
    assert 1 == len(devices("local_cpu0", "local_cpu1", boards=local)[0])


def test_a_share_of_the_cores_has_that_share_of_the_power():
    boards = platform(board("edge01", gpus=1))
    _, found = devices("edge01_cpu0", "edge01_cpu0-1", "edge01_gpu", boards=boards)
    assert [0.25, 0.5, 0.5] == [device.power_share for device in found]


def test_a_key_that_the_platform_does_not_have_is_refused():
    with pytest.raises(RankSliceError, match="no board 'edge9'"):
        devices("edge9_cpu0")


def test_layers_that_nobody_needs_and_constants_have_no_device():
    graph = line_graph("c: -> k\na: x k -> t\nspare: t -> s\nb: t -> y", outputs="y")
    assert ["a", "b"] == [layer.name for layer in explored_layers(graph)]


def test_tensors_have_their_producers_and_readers():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t u x -> y", outputs="u y")
    assert [
        ("x", -1, (0, 2), False),
        ("t", 0, (1, 2), False),
        ("u", 1, (2,), True),
        ("y", 2, (), True),
    ] == [(t.name, t.producer, t.readers, t.is_output) for t in problem(graph).tensors]


def test_frames_enter_at_the_first_reader_and_leave_at_the_last_output():
    graph = line_graph("r!: -> n\na: x n -> t\nb: t -> y\nc: t -> z", outputs="y z")
    made = problem(graph, times_s=[[1.0] * 4])
    assert (0, 3) == (made.source_layer, made.sink_layer)


def test_bonds_keep_layers_together():
    bound = replace(CHAIN, bonds=(Bond(("a", "c"), "share a variable"),))
    assert ((0, 2),) == problem(bound).together


def test_times_of_another_shape_are_refused():
    with pytest.raises(RankSliceError, match=r"expected \(1, 3\): kinds of accelerators and"):
        problem(times_s=[[1.0, 2.0]])


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_times_that_are_no_times_are_refused(wrong):
    with pytest.raises(RankSliceError, match="not numbers, or below 0"):
        problem(times_s=[[1.0, wrong, 2.0]])


def test_spans_are_sums_unless_something_better_is_known():
    (table,) = summed_spans(np.array([[1.0, np.inf, 2.0, 3.0]]))
    assert [1.0, np.inf, 2.0, 5.0, 3.0] == [
        table[at] for at in [(0, 0), (0, 2), (2, 2), (2, 3), (3, 3)]
    ]


def test_links_are_those_of_the_pair_or_the_default():
    slow = Link(bandwidth_mbps=8.0, latency_ms=5.0)
    boards = Platform(
        "boards.yaml",
        tuple(board(f"edge{n}") for n in range(3)),
        GIGABIT,
        (("edge2", "edge0", slow),),
    )
    made = problem(boards=boards)
    assert [1e6, 125e6] == [made.bandwidth_bytes_s[0, 2], made.bandwidth_bytes_s[0, 1]]
    assert 5e-3 == made.latency_s[2, 0]
    assert "boards.yaml: links.pairs[0]" == made.link_sources[0][2]


def test_a_platform_without_links_says_that_they_are_unknown():
    links = LinkSpeeds(platform(link=None))
    assert UNKNOWN_LINK == links.described("edge01", "edge02")[0]
    assert "counted as nothing" in links.described("edge01", "edge02")[1]
    assert Link(float("inf"), 1e3 * WAKE_UP_S) == links.described("edge01", "edge01")[0]


def test_a_mapping_has_ranges_in_the_order_of_a_frame():
    expected = {"edge02_cpu0-1": ["a..b"], "edge01_cpu0-1": ["c"]}
    assert expected == mapping_of(problem(), [1, 1, 0])


def test_names_with_dots_are_not_made_ranges():
    graph = line_graph("a..b: x -> t\nc: t -> u\nd: u -> y", outputs="y")
    assert {"edge01_cpu0-1": ["a..b", "c", "d"]} == mapping_of(problem(graph), [0, 0, 0])


@given(random_graphs(), st.data())
def test_a_mapping_gives_each_layer_the_device_that_was_assigned(graph, data):
    layers = explored_layers(graph)
    made = make_problem(graph, platform(), np.ones((1, len(layers))))
    chosen = data.draw(st.lists(st.integers(0, 1), min_size=len(layers), max_size=len(layers)))
    text = json.loads(json.dumps(mapping_of(made, chosen)))
    mapping = Mapping("found", tuple(MappingEntry(k, tuple(v)) for k, v in text.items()))
    ranks = assign(mapping, graph).entry_of
    keys = [made.devices[device].key for device in chosen]
    assert keys == [mapping.entries[ranks[layer.name]].key for layer in layers]


def test_a_mapping_needs_a_model():
    with pytest.raises(RankSliceError, match="made without a model"):
        mapping_of(replace(problem(), graph=None), [0, 0, 0])


KEYS = ("edge01_cpu0", "edge02_cpu0")


def profile(idle_mw: int | None, energy_uj: int | None) -> Profile:
    """Return a profile of a chain of three layers of 1 s each, with what a sensor told."""
    sensor = None if idle_mw is None else "hwmon ina219 power1"
    cores = (Core(0, None, None),)
    measured = MeasuredBoard("edge01", "e", "x86_64", "", "3.11", 1, cores, sensor, idle_mw)
    spans = tuple(
        Span(
            first,
            last,
            ((last - first + 1) * 10**9,),
            (1,),
            None,
            energy_uj if (first, last) == (0, 2) else None,
            None,
            False,
        )
        for first in range(3)
        for last in range(first, 3)
    )
    kind = ProfiledKind(
        KEYS[0], KEYS, "cpu", 1, "onnxruntime", "1", (), (), False, (), 0, measured, spans
    )
    return Profile(ProfiledModel("chain", "", (), ("a", "b", "c")), (kind,))


def with_memory(rank_bytes: int, *span_bytes: int | None) -> Profile:
    """Return the profile of a kind with the memory of a bare rank, and of its first spans."""
    given = profile(None, None)
    (kind,) = given.kinds
    spans = [
        replace(span, memory_bytes=taken)
        for span, taken in zip_longest(kind.spans, span_bytes[: len(kind.spans)])
    ]
    return replace(given, kinds=(replace(kind, rank_bytes=rank_bytes, spans=tuple(spans)),))


def explored(profile: Profile) -> Problem:
    """Return the problem of two equal boards of which no power is given."""
    boards = [board(name, idle_w=None, busy_w=None) for name in ("edge01", "edge02")]
    return profiled_problem(profile, CHAIN, platform(*boards), keys=KEYS)


def test_power_that_a_sensor_told_makes_energy_measured_on_all_boards_that_are_equal() -> None:
    # 3 s at 9 W, of which 2 W at rest: 7 W are due to computing.
    problem = explored(profile(2000, 27_000_000))
    (used,) = predict(problem, [1, 1, 1]).boards
    assert ("edge02", "measured", "profile.json") == (
        used.name,
        used.energy_source,
        used.energy_from,
    )
    busy_s = predict(problem, [1, 1, 1]).devices[0].busy_s
    assert used.energy_j == pytest.approx(9 * busy_s)


@pytest.mark.parametrize("told", [(None, None), (2000, None)])
def test_without_a_sensor_or_an_energy_of_any_span_energy_is_absent(
    told: tuple[int | None, int | None],
) -> None:
    (used,) = predict(explored(profile(*told)), [0, 0, 0]).boards
    assert (None, None) == (used.energy_j, used.energy_source)


@pytest.mark.parametrize(
    ("spans", "context"),
    [((640_000_000, 650_000_000, None, 645_000_000), 645_000_000), ((), 0), ((7,), 0)],
)
def test_a_rank_takes_the_context_of_its_engine_besides_its_layers(
    spans: tuple[int | None, ...], context: int
) -> None:
    bare = predict(explored(with_memory(0)), [0, 0, 0]).boards[0].memory_bytes
    (used,) = predict(explored(with_memory(100_000_000, *spans)), [0, 0, 0]).boards
    assert used.memory_bytes - bare == pytest.approx(100_000_000 + context, abs=1000)


def test_a_rank_takes_of_the_gpu_what_its_context_and_its_layers_need() -> None:
    (kind,) = with_memory(0).kinds
    spans = tuple(replace(span, gpu_bytes=700_000_000) for span in kind.spans[:1])
    given = replace(with_memory(0), kinds=(replace(kind, spans=spans + kind.spans[1:]),))
    problem = explored(given)
    (whole,) = predict(problem, [0, 0, 0]).devices
    halves = predict(problem, [0, 1, 1]).devices
    assert whole.gpu_bytes == pytest.approx(700_000_000, abs=1000)
    weights = int(problem.weight_bytes.sum() + problem.working_bytes.max())
    assert all(halve.gpu_bytes == pytest.approx(700_000_000, abs=weights) for halve in halves)
    assert predict(explored(with_memory(0)), [0, 0, 0]).devices[0].gpu_bytes is None
