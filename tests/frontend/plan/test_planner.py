import math
from dataclasses import replace

import pytest
from hypothesis import given
from line_graphs import line_graph
from placements import placements
from plans import planned, plans
from strategies import mapped_graphs

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import plan_from_json, plan_to_json


def channels(plan):
    return [(c.number, c.tensor, c.source, c.destination) for c in plan.channels]


@given(plans())
def test_a_plan_is_sound_and_reads_back_as_it_was(plan):
    assert plan == plan_from_json(plan_to_json(plan))


def frames_of(plan, turns):
    """Return the frames of some turns, as many as it takes until those of all ranks repeat."""
    total = math.lcm(*(rank.turns.period for rank in plan.ranks))
    return {frame for frame in range(total) if frame % turns.period in turns.positions}


def made(plan):
    """Return by tensor what makes it: rank, frames and segment, if it is no model input."""
    every = frames_of(plan, ALL)
    found = {name: [(plan.job.source, every, None)] for name in plan.inputs}
    for segment in plan.segments:
        for name in segment.outputs:
            frames = frames_of(plan, plan.ranks[segment.rank].turns)
            found.setdefault(name, []).append((segment.rank, frames, segment))
    return found


def needed(plan):
    """Return who needs which tensor, with the frames."""
    found = {
        (name, segment.rank): frames_of(plan, plan.ranks[segment.rank].turns)
        for segment in plan.segments
        for name in segment.inputs
    }
    return found | {(name, plan.job.sink): frames_of(plan, ALL) for name in plan.outputs}


@given(plans())
def test_each_rank_gets_each_tensor_that_it_lacks_once_and_from_where_it_is_first(plan):
    makers = made(plan)
    expected = [
        (name, maker, rank)
        for (name, rank), frames in needed(plan).items()
        for maker, there, _ in makers[name]
        if maker != rank and there & frames
    ]
    assert sorted(expected) == sorted((c.tensor, c.source, c.destination) for c in plan.channels)


@given(plans())
def test_each_frame_of_a_tensor_is_made_once(plan):
    for makers in made(plan).values():
        assert sorted(frames_of(plan, ALL)) == sorted(f for _, frames, _ in makers for f in frames)


@given(plans())
def test_a_level_is_the_length_of_the_longest_way_from_the_source(plan):
    """Walk the ways one by one, channel by channel and segment by segment."""
    makers = made(plan)

    def longest(rank, frames, names):
        return max((arrival(name, rank, frames) for name in names), default=0)

    def arrival(name, rank, frames):
        return max(
            (longest(maker, there, segment.inputs) + segment.levels if segment else 0)
            + (rank != maker)
            for maker, there, segment in makers[name]
            if there & frames
        )

    for segment in plan.segments:
        turns = plan.ranks[segment.rank].turns
        before = longest(segment.rank, frames_of(plan, turns), segment.inputs)
        assert (turns.levels, before + turns.levels) == (segment.levels, segment.level)
    assert plan.job.path_length == longest(plan.job.sink, frames_of(plan, ALL), plan.outputs)


@given(plans())
def test_every_tensor_at_a_border_is_described_once(plan):
    borders = {name for s in plan.segments for name in (*s.inputs, *s.outputs)}
    described = [tensor.name for tensor in plan.job.tensors.values()]
    assert sorted(borders | set(plan.inputs)) == sorted(described)


@given(mapped_graphs())
def test_equal_input_makes_equal_bytes(mapped):
    assert plan_to_json(planned(*mapped)) == plan_to_json(planned(*mapped))


def test_one_rank_lets_two_frames_in():
    plan = planned(line_graph("a: x -> y", outputs="y"), {"a": 0})
    assert (1, 2) == (plan.job.path_length, plan.job.window)
    assert () == plan.channels


def test_a_chain_of_two_ranks_counts_two_segments_and_a_hop():
    plan = planned(line_graph("a: x -> t\nb: t -> y", outputs="y"), {"a": 0, "b": 1})
    assert [1, 3] == [segment.level for segment in plan.segments]
    assert (0, 1, 3) == (plan.job.source, plan.job.sink, plan.job.path_length)
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
    assert (1, 0) == (plan.job.source, plan.job.sink)
    assert [(1, "right", 1, 0), (2, "t", 1, 0)] == channels(plan)


def test_an_input_that_nobody_reads_is_in_the_plan_but_in_no_channel():
    graph = line_graph("a: x -> y", outputs="y", inputs="spare x")
    plan = planned(graph, {"a": 0}, places=placements("board_cpu0"))
    assert ["spare", "x", "y"] == [tensor.name for tensor in plan.job.tensors.values()]
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


CHAIN = line_graph("a: x -> s\nb: s -> y", outputs="y")
THREE = line_graph("a: x -> s\nb: s -> t\nc: t -> y", outputs="y")


def ends(plan, tensor):
    return [(c.source, c.destination) for c in plan.channels if c.tensor == tensor]


def test_one_rank_sends_to_each_that_takes_turns_and_another_gets_from_each():
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, weights={1: (1, 1)})
    assert [(1, "s", 0, 1), (2, "s", 0, 2), (3, "t", 1, 3), (4, "t", 2, 3)] == channels(plan)
    # a, a hop, b in two steps, a hop, c.
    assert [1, 4, 4, 6] == [segment.level for segment in plan.segments]
    assert [1, 2, 2, 1] == [segment.levels for segment in plan.segments]
    assert (0, 3, 6, 7) == (plan.job.source, plan.job.sink, plan.job.path_length, plan.job.window)


def test_ranks_with_the_same_turns_go_in_pairs():
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, weights={0: (1, 1), 1: (1, 1)})
    assert [(0, 2), (1, 3)] == ends(plan, "s")
    assert [(2, 4), (3, 4)] == ends(plan, "t")


def test_unequal_turns_of_the_same_weights_go_in_pairs():
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, weights={0: (2, 1), 1: (4, 2)})
    assert [(0, 2), (1, 3)] == ends(plan, "s")


def test_turns_without_a_common_period_have_a_channel_for_each_pair():
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, weights={0: (1, 1), 1: (1, 1, 1)})
    assert [(maker, reader) for maker in (0, 1) for reader in (2, 3, 4)] == ends(plan, "s")


def test_ranks_that_never_have_the_same_frame_have_no_channel():
    # Ranks 0 and 1 handle even and odd frames, ranks 2 to 5 each fourth.
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, weights={0: (1, 1), 1: (1, 1, 1, 1)})
    assert [(0, 2), (0, 4), (1, 3), (1, 5)] == ends(plan, "s")


def test_the_whole_model_in_turns_enters_and_leaves_at_the_first_rank():
    plan = planned(line_graph("a: x -> y", outputs="y"), {"a": 0}, weights={0: (1, 1, 1)})
    assert (0, 0) == (plan.job.source, plan.job.sink)
    expected = [(1, "x", 0, 1), (2, "x", 0, 2), (3, "y", 1, 0), (4, "y", 2, 0)]
    assert expected == channels(plan)
    # At other ranks than the first an input and a result travel.
    assert [3, 4, 4] == [segment.level for segment in plan.segments]
    assert (5, 6) == (plan.job.path_length, plan.job.window)


def test_source_and_sink_are_the_first_of_their_ranks():
    plan = planned(CHAIN, {"a": 0, "b": 1}, weights={0: (1, 1), 1: (1, 1)})
    assert (0, 2) == (plan.job.source, plan.job.sink)
    assert [(0, 1), (3, 2)] == [*ends(plan, "x"), *ends(plan, "y")]


def test_frames_may_enter_at_another_of_the_ranks_that_take_turns():
    plan = planned(CHAIN, {"a": 0, "b": 1}, source_rank=1, weights={0: (1, 1)})
    assert [(1, 0)] == ends(plan, "x")


def test_a_result_that_ranks_make_in_turn_goes_to_the_sink_from_each():
    graph = line_graph("a: x -> s\nb: s -> t u\nc: t -> y", outputs="y u")
    plan = planned(graph, {"a": 0, "b": 1, "c": 2}, weights={1: (1, 1)})
    assert 3 == plan.job.sink
    assert [(1, 3), (2, 3)] == ends(plan, "u")


def test_a_result_that_the_sink_reads_in_turn_comes_for_all_frames():
    graph = line_graph("a: x -> s\nb: s -> y", outputs="s y")
    plan = planned(graph, {"a": 0, "b": 1}, weights={1: (1, 1)})
    assert (1, ALL) == (plan.job.sink, plan.job.turns_of_reader(1, "s"))
    assert [(0, 1), (0, 2)] == ends(plan, "s")
    assert Turns(2, (1,)) == plan.job.turns_of_reader(2, "s")


def test_each_rank_that_takes_turns_has_files_of_its_own():
    keys = placements("edge01_gpu", "edge02_cpu0-3")
    graph = line_graph("a: x -> y", outputs="y")
    plan = planned(graph, {"a": 0}, places=keys, weights={0: (3, 1)})
    files = ["submodels/edge01_gpu.0.onnx", "submodels/edge02_cpu0-3.0.onnx"]
    assert files == [segment.file for segment in plan.segments]


def test_tensors_of_ranks_that_take_turns_are_described_once():
    plan = planned(THREE, {"a": 0, "b": 1, "c": 2}, weights={1: (1, 1)})
    assert ["x", "s", "t", "y"] == [tensor.name for tensor in plan.job.tensors.values()]
