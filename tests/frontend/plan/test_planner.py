from dataclasses import replace

import pytest
from hypothesis import given, settings
from line_graphs import line_graph
from placements import placements
from plans import planned, plans
from strategies import mapped_graphs

from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import plan_from_json, plan_to_json


def channels(plan):
    return [(c.number, c.tensor, c.source, c.destination) for c in plan.channels]


@given(plans())
@settings(max_examples=100)
def test_a_plan_is_sound_and_reads_back_as_it_was(plan):
    assert plan == plan_from_json(plan_to_json(plan))


@given(plans())
@settings(max_examples=100)
def test_each_rank_gets_each_tensor_that_it_lacks_once_and_from_where_it_is_first(plan):
    origin = dict.fromkeys(plan.model.inputs, plan.source)
    origin |= {name: segment.rank for segment in plan.segments for name in segment.outputs}
    needed = {(name, segment.rank) for segment in plan.segments for name in segment.inputs}
    needed |= {(name, plan.sink) for name in plan.model.outputs}
    expected = {(name, origin[name], rank) for name, rank in needed if origin[name] != rank}
    assert sorted(expected) == sorted((c.tensor, c.source, c.destination) for c in plan.channels)


@given(plans())
@settings(max_examples=100)
def test_a_level_is_the_length_of_the_longest_way_from_the_source(plan):
    """Walk the ways one by one, channel by channel and segment by segment."""

    def longest(rank, names):
        return 1 + max((arrival(name, rank) for name in names), default=0)

    def arrival(name, rank):
        if name in plan.model.inputs:
            return int(rank != plan.source)
        (maker,) = (segment for segment in plan.segments if name in segment.outputs)
        return longest(maker.rank, maker.inputs) + (rank != maker.rank)

    assert [longest(s.rank, s.inputs) for s in plan.segments] == [s.level for s in plan.segments]
    assert longest(plan.sink, plan.model.outputs) - 1 == plan.path_length


@given(plans())
def test_every_tensor_at_a_border_is_described_once(plan):
    borders = {name for s in plan.segments for name in (*s.inputs, *s.outputs)}
    described = [tensor.name for tensor in plan.tensors]
    assert sorted(borders | set(plan.model.inputs)) == sorted(described)


@given(mapped_graphs())
def test_equal_input_makes_equal_bytes(mapped):
    assert plan_to_json(planned(*mapped)) == plan_to_json(planned(*mapped))


def test_one_rank_lets_two_frames_in():
    plan = planned(line_graph("a: x -> y", outputs="y"), {"a": 0})
    assert (1, 2) == (plan.path_length, plan.window)
    assert () == plan.channels


def test_a_chain_of_two_ranks_counts_two_segments_and_a_hop():
    plan = planned(line_graph("a: x -> t\nb: t -> y", outputs="y"), {"a": 0, "b": 1})
    assert [1, 3] == [segment.level for segment in plan.segments]
    assert (0, 1, 3) == (plan.source, plan.sink, plan.path_length)
    assert [(1, "t", 0, 1)] == channels(plan)


def test_frames_may_enter_at_another_rank_than_the_first_layers():
    graph = line_graph("a: x -> t\nb: t -> y", outputs="y")
    plan = planned(graph, {"a": 0, "b": 1}, source_rank=1)
    assert [(1, "x", 1, 0), (2, "t", 0, 1)] == channels(plan)
    assert [2, 4] == [segment.level for segment in plan.segments]


def test_a_skip_tensor_goes_once_to_each_rank_that_reads_it():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t -> v\nd: t u v -> y", outputs="y")
    plan = planned(graph, {"a": 0, "b": 1, "c": 1, "d": 2})
    expected = [(1, "t", 0, 1), (2, "t", 0, 2), (3, "u", 1, 2), (4, "v", 1, 2)]
    assert expected == channels(plan)


def test_a_tensor_that_the_sink_reads_and_gives_out_crosses_once():
    graph = line_graph("a: x -> t\nb: t -> y", outputs="t y")
    plan = planned(graph, {"a": 0, "b": 1})
    assert [(1, "t", 0, 1)] == channels(plan)


def test_an_output_made_early_travels_to_the_sink():
    graph = line_graph("a: x -> t u\nb: t -> y", outputs="u y")
    plan = planned(graph, {"a": 0, "b": 1})
    assert [(1, "t", 0, 1), (2, "u", 0, 1)] == channels(plan)


def test_each_model_input_goes_from_the_source_to_its_readers():
    graph = line_graph("a: left -> t\nb: right t -> y", outputs="y", inputs="right left")
    plan = planned(graph, {"a": 1, "b": 0})
    assert (1, 0) == (plan.source, plan.sink)
    assert [(1, "right", 1, 0), (2, "t", 1, 0)] == channels(plan)


def test_an_input_that_nobody_reads_is_in_the_plan_but_in_no_channel():
    graph = line_graph("a: x -> y", outputs="y", inputs="spare x")
    plan = planned(graph, {"a": 0}, places=placements("board_cpu0"))
    assert ["spare", "x", "y"] == [tensor.name for tensor in plan.tensors]
    assert () == plan.channels


def test_files_are_named_after_the_key_and_the_segment():
    graph = line_graph("a: x -> t\nb: t -> u\nc: u -> y", outputs="y")
    keys = placements("edge01_cpu0-3.2", "../etc_cpu1")
    plan = planned(graph, {"a": 0, "b": 1, "c": 0}, places=keys)
    assert [
        "submodels/edge01_cpu0-3.2.0.onnx",
        "submodels/%2E.%2Fetc_cpu1.0.onnx",
        "submodels/edge01_cpu0-3.2.1.onnx",
    ] == [segment.file for segment in plan.segments]


def test_a_rank_whose_layers_lead_nowhere_is_refused_by_its_key():
    graph = line_graph("a: x -> y\nlost: x -> u", outputs="y")
    with pytest.raises(RankSliceError, match="rank 1, key 'board_cpu1': none of its layers"):
        planned(graph, {"a": 0, "lost": 1})


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_source_that_is_no_rank_is_refused(rank):
    graph = line_graph("a: x -> t\nb: t -> y", outputs="y")
    with pytest.raises(RankSliceError, match=f"there is no rank {rank}; expected 0 to 1"):
        planned(graph, {"a": 0, "b": 1}, source_rank=rank)


def test_sub_models_keep_the_format_of_the_model():
    graph = replace(line_graph("a: x -> y", outputs="y"), format="tflite")
    assert "submodels/board_cpu0.0.tflite" == planned(graph, {"a": 0}).segments[0].file
