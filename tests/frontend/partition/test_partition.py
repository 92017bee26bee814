import gc
import time
from dataclasses import replace

import pytest
from hypothesis import given
from line_graphs import line_graph
from plans import FIGURE_2, FIGURE_2_RANKS
from strategies import mapped_graphs

from rankslice.backend.runtime import sizes
from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Tensor, Weight, constant_layers
from rankslice.frontend.partition.crossing import HEADER_BYTES, MAX_DIMENSIONS
from rankslice.frontend.partition.partition import partition, used_layers


def names(items):
    return [item.name for item in items]


def shown(found):
    return [(s.rank, s.index, *names(s.layers)) for s in found.segments]


def mistakes(graph, ranks):
    with pytest.raises(RankSliceError) as raised:
        partition(graph, ranks)
    return [str(mistake) for mistake in raised.value.mistakes]


def with_tensor(graph, name, **changes):
    """Return the graph with another description of one tensor."""

    def changed(tensors):
        return tuple(replace(t, **changes) if t.name == name else t for t in tensors)

    layers = [
        replace(x, inputs=changed(x.inputs), outputs=changed(x.outputs)) for x in graph.layers
    ]
    return replace(
        graph,
        layers=tuple(layers),
        inputs=changed(graph.inputs),
        outputs=changed(graph.outputs),
    )


@given(mapped_graphs())
def test_every_layer_that_a_frame_needs_is_in_one_segment_of_its_rank(mapped):
    graph, ranks = mapped
    placed = [
        (layer.name, segment.rank)
        for segment in partition(graph, ranks).segments
        for layer in segment.layers
        if layer.name not in segment.copies
    ]
    needed = used_layers(graph) - constant_layers(graph)
    assert sorted((name, ranks[name]) for name in needed) == sorted(placed)


@given(mapped_graphs())
def test_a_segment_needs_only_model_inputs_and_outputs_of_segments_before_it(mapped):
    found = partition(*mapped)
    there = set(names(found.graph.inputs))
    for segment in found.segments:
        assert set(names(segment.inputs)) <= there
        there |= set(names(segment.outputs))
    assert set(names(found.graph.outputs)) <= there


@given(mapped_graphs())
def test_layers_of_one_rank_but_of_different_groups_are_never_in_one_segment(mapped):
    graph, ranks = mapped
    graph = replace(graph, layers=tuple(replace(x, deterministic=False) for x in graph.layers))
    ranks |= dict.fromkeys(set(names(graph.layers)) - set(ranks), 0)
    groups = {layer.name: number % 2 for number, layer in enumerate(graph.layers)}
    found = partition(graph, ranks, group_of=groups)
    there = set(names(graph.inputs))
    for segment in found.segments:
        assert 1 == len({groups[name] for name in names(segment.layers)})
        assert {segment.rank} == {ranks[name] for name in names(segment.layers)}
        assert set(names(segment.inputs)) <= there
        there |= set(names(segment.outputs))
    for rank in ranks.values():
        indices = [segment.index for segment in found.segments if segment.rank == rank]
        assert list(range(len(indices))) == indices


def test_a_layer_of_another_group_between_two_makes_three_segments():
    graph = line_graph("a: x -> p\nb: p -> q\nc: q -> y\nd: p -> z", "y z")
    found = partition(graph, dict.fromkeys("abcd", 0), group_of={"b": "other"})
    assert [(0, 0, "a", "d"), (0, 1, "b"), (0, 2, "c")] == shown(found)
    assert found.minimal


def test_a_copy_of_a_layer_of_another_group_is_refused():
    graph = line_graph("a: -> w\nb: x w -> y", "y")
    with pytest.raises(RankSliceError, match="layer 'a': would be copied to layer 'b'"):
        partition(graph, {"b": 0}, group_of={"a": "one", "b": "other"})


@given(mapped_graphs())
def test_a_single_group_changes_nothing(mapped):
    graph, ranks = mapped
    groups = dict.fromkeys((layer.name for layer in graph.layers), "all")
    assert partition(graph, ranks) == partition(graph, ranks, group_of=groups)


@given(mapped_graphs())
def test_the_layers_of_a_segment_run_one_after_the_other_from_its_inputs(mapped):
    for segment in partition(*mapped).segments:
        there = set(names(segment.inputs))
        for layer in segment.layers:
            assert set(names(layer.inputs)) <= there
            there |= set(names(layer.outputs))
        assert set(names(segment.outputs)) <= there - set(names(segment.inputs))


@given(mapped_graphs())
def test_a_segment_gives_out_what_others_read_and_what_leaves_the_model_and_no_more(mapped):
    found = partition(*mapped)
    wanted = set(names(found.graph.outputs))
    wanted |= {name for segment in found.segments for name in names(segment.inputs)}
    given_out = [name for segment in found.segments for name in names(segment.outputs)]
    assert sorted(wanted - set(names(found.graph.inputs))) == sorted(given_out)


@given(mapped_graphs())
def test_a_segment_has_no_constant_layer_that_it_does_not_need(mapped):
    for segment in partition(*mapped).segments:
        for position, layer in enumerate(segment.layers):
            if layer.name in segment.copies:
                later = segment.layers[position + 1 :]
                read = {name for reader in later for name in names(reader.inputs)}
                assert read & set(names(layer.outputs))


@given(mapped_graphs())
def test_segments_are_numbered_from_0_within_each_rank(mapped):
    found = partition(*mapped).segments
    for rank in {segment.rank for segment in found}:
        indices = [segment.index for segment in found if segment.rank == rank]
        assert list(range(len(indices))) == indices


@given(mapped_graphs())
def test_the_same_model_and_mapping_give_the_same_partition(mapped):
    assert partition(*mapped) == partition(*mapped)


def test_the_figure_of_autodice_has_two_ranks_in_two_segments():
    found = partition(FIGURE_2, FIGURE_2_RANKS)
    assert [
        (0, 0, "MaxPool1"),
        (1, 0, "FC1"),
        (2, 0, "Conv1"),
        (0, 1, "Add1"),
        (2, 1, "Relu1"),
    ] == shown(found)
    assert found.minimal


def test_one_rank_with_all_layers_is_one_segment():
    found = partition(FIGURE_2, dict.fromkeys(names(FIGURE_2.layers), 0))
    assert [(0, 0, *names(FIGURE_2.layers))] == shown(found)
    assert ["input"] == names(found.segments[0].inputs)
    assert ["output"] == names(found.segments[0].outputs)


def test_segments_that_are_convex_but_wait_for_each_other_are_cut_apart():
    graph = line_graph("a: x -> t\nb: t -> u\nc: x -> v\nd: v -> w", outputs="u w")
    found = partition(graph, {"a": 0, "b": 1, "c": 1, "d": 0})
    assert 3 == len(found.segments)


def test_a_layer_that_chains_have_in_common_is_not_computed_twice():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t -> v", outputs="u v")
    found = partition(graph, {"a": 0, "b": 1, "c": 2})
    assert [["t"], ["u"], ["v"]] == [names(s.outputs) for s in found.segments]


def test_segments_stand_by_level_where_a_hop_between_ranks_counts():
    graph = line_graph("a: x -> t\nb: t -> u\nc: u -> v\nd: x -> w", outputs="v w")
    found = partition(graph, {"a": 0, "b": 1, "c": 0, "d": 2})
    assert [(0, 0, "a"), (2, 0, "d"), (1, 0, "b"), (0, 1, "c")] == shown(found)


def test_a_constant_is_copied_to_each_segment_that_needs_it():
    graph = line_graph("one: -> c\ntwo: c -> d\na: x d -> t\nb: t d -> y", outputs="y")
    found = partition(graph, {"one": 1, "a": 0, "b": 1})
    assert [(0, 0, "one", "two", "a"), (1, 0, "one", "two", "b")] == shown(found)
    assert [("one", "two"), ("one", "two")] == [s.copies for s in found.segments]
    assert [["x"], ["t"]] == [names(s.inputs) for s in found.segments]


def test_a_constant_that_is_a_model_output_is_run_by_its_rank_alone():
    graph = line_graph("one: -> c\na: x c -> y", outputs="y c")
    found = partition(graph, {"one": 1, "a": 0})
    assert [(1, 0, "one"), (0, 0, "a")] == shown(found)


def test_layers_that_lead_to_no_model_output_are_left_out():
    graph = line_graph("a: x -> t\nlost: t -> u\nb: t -> y", outputs="y")
    found = partition(graph, {"a": 0, "lost": 1, "b": 1})
    assert [(0, 0, "a"), (1, 0, "b")] == shown(found)
    assert ["t"] == names(found.segments[0].outputs)


def test_random_layers_are_not_copied():
    graph = line_graph("noise!: -> r\na: x r -> t\nb: t r -> y", outputs="y")
    found = partition(graph, {"noise": 0, "a": 1, "b": 0})
    assert [()] * 3 == [segment.copies for segment in found.segments]


def test_a_tensor_of_unknown_shape_between_segments_is_refused_with_both_layers():
    graph = with_tensor(FIGURE_2, "Buff3", shape=None)
    assert [
        "model.onnx: tensor 'Buff3', made by layer 'Conv1' and read by layer 'Add1': its sizes "
        "have no known bound: the model cannot be cut here; map layers 'Conv1' and 'Add1', and "
        "those between, to one key, or give its largest sizes, such as --at-most Buff3=100,4"
    ] == mistakes(graph, FIGURE_2_RANKS)


def test_layers_that_have_to_be_on_one_rank_are_told_once_as_a_range():
    graph = chain(80)
    for n in range(10, 70):
        graph = with_tensor(graph, f"t{n}", shape=None)
    (told,) = mistakes(graph, {layer.name: n % 2 for n, layer in enumerate(graph.layers)})
    assert told.startswith(
        "model.onnx: layers 'n10' to 'n70': tensors between them cannot be sent ('t10', 't11', "
        "'t12', 't13', 't14', ... and 55 more), the first because its sizes have no known bound; "
        "map them and those between to one key, or give their largest sizes, such as "
        "--at-most t10=100,4 --at-most t11=100,4 "
    )


def test_ranges_that_have_no_layer_in_common_are_told_apart():
    graph = with_tensor(with_tensor(chain(6), "t0", shape=None), "t3", shape=None)
    told = mistakes(graph, {layer.name: n % 2 for n, layer in enumerate(graph.layers)})
    assert ["'n0'", "'n3'"] == [text.split("made by layer ")[1].split(" ")[0] for text in told]


def test_a_tensor_of_unknown_shape_within_a_segment_is_fine():
    graph = with_tensor(FIGURE_2, "Buff3", shape=None)
    assert 1 == len(partition(graph, dict.fromkeys(names(graph.layers), 0)).segments)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"dtype": ""}, "it is not a tensor of a known element type"),
        ({"dtype": "str"}, "its elements (str) have no fixed size"),
        (
            {"dtype": "sequence", "shape": None},
            "it is a sequence, not a tensor: the model cannot be cut here; map layers 'a' and 'b', "
            "and those between, to one key",
        ),
        ({"shape": (2, 0)}, "it has no elements"),
        (
            {"shape": (2, 2**30), "symbols": ("", "n")},
            "it may have 8589934592 bytes (2 x 1073741824), but a message holds at most 2147483583:"
            " the model cannot be cut here; map layers 'a' and 'b', and those between, to one key, "
            "or give smaller sizes, such as --at-most t=2,134217728",
        ),
        (
            {"shape": (2,) * 13, "symbols": ("n",) * 13},
            "it has open sizes and more than 12 dimensions: the model cannot be cut here; map "
            "layers 'a' and 'b', and those between, to one key",
        ),
        (
            {"shape": (2**29,)},
            "it has 2147483648 bytes, but a message holds at most 2147483647",
        ),
    ],
)
def test_what_no_message_can_carry_is_refused(changes, fault):
    graph = with_tensor(line_graph("a: x -> t\nb: t -> y", outputs="y"), "t", **changes)
    (mistake,) = mistakes(graph, {"a": 0, "b": 1})
    assert fault in mistake
    assert "--at-most" not in mistake.replace(fault, "")


def test_messages_of_open_sizes_are_what_the_runtime_takes():
    assert (HEADER_BYTES, MAX_DIMENSIONS) == (sizes.HEADER_BYTES, sizes.MAX_DIMENSIONS)


def test_a_message_of_two_gigabytes_less_a_byte_is_fine():
    graph = line_graph("a: x -> t\nb: t -> y", outputs="y")
    graph = with_tensor(graph, "t", shape=(2**31 - 1,), dtype="uint8")
    assert 2 == len(partition(graph, {"a": 0, "b": 1}).segments)


def test_model_inputs_and_outputs_need_a_known_size_too():
    graph = with_tensor(line_graph("a: x -> y", outputs="y"), "y", dtype="str")
    graph = with_tensor(graph, "x", shape=None)
    assert [
        "model.onnx: input 'x': its sizes have no known bound",
        "model.onnx: tensor 'y', made by layer 'a': its elements (str) have no fixed size: "
        "it cannot be a model output",
    ] == mistakes(graph, {"a": 0})


def test_an_input_that_is_too_large_has_an_option_that_is_not():
    graph = line_graph("a: x -> y", outputs="y")
    graph = with_tensor(graph, "x", shape=(3, 2**28), symbols=("", "n"))
    assert [
        "model.onnx: input 'x': it may have 3221225472 bytes (3 x 268435456), but a message "
        "holds at most 2147483583; give smaller sizes, such as --at-most x=3,134217728"
    ] == mistakes(graph, {"a": 0})


def test_inputs_that_are_model_outputs_need_no_segment():
    graph = line_graph("a: x -> y", outputs="x y")
    found = partition(graph, {"a": 0})
    assert [["y"]] == [names(segment.outputs) for segment in found.segments]


def test_weights_that_are_model_outputs_come_from_the_last_segment_that_makes_one():
    graph = line_graph("a: x -> t\nb: t -> y\nc: t -> z\nd: z -> u", outputs="y w z")
    weight = Weight("w", "float32", (4,), 16, graph.layers[0].record, None)
    given = Tensor("w", "float32", (4,))
    outputs = tuple(given if t.name == "w" else t for t in graph.outputs)
    found = partition(
        replace(graph, weights=(weight,), outputs=outputs), {"a": 0, "b": 1, "c": 0, "d": 1}
    )
    assert [["t", "z"], ["y", "w"]] == [names(segment.outputs) for segment in found.segments]


def test_an_output_that_is_no_tensor_of_the_model_is_refused():
    graph = line_graph("a: x -> y", outputs="y nothing")
    expected = "model.onnx: output 'nothing': no layer produces it; expected a tensor of the model"
    assert [expected] == mistakes(graph, {"a": 0})


def test_a_model_without_outputs_is_refused():
    assert ["model.onnx: the model has no outputs"] == mistakes(
        line_graph("a: x -> y", outputs=""), {"a": 0}
    )


def chain(count):
    return line_graph(
        "\n".join(f"n{n}: {'x' if not n else f't{n - 1}'} -> t{n}" for n in range(count)),
        f"t{count - 1}",
    )


def branches(count):
    lines = [f"n{n}: x -> t{n}" for n in range(count - 1)]
    inputs = " ".join(f"t{n}" for n in range(count - 1))
    return line_graph("\n".join([*lines, f"n{count - 1}: {inputs} -> y"]), "y")


def skips(count):
    before = ["x", "x", *(f"t{n}" for n in range(count))]
    lines = [f"n{n}: {before[n + 1]} {before[n]} -> t{n}" for n in range(count)]
    return line_graph("\n".join(lines), f"t{count - 1}")


def seconds(make, count):
    """Return the processor time that it takes to partition a graph over three ranks."""
    graph = make(count)
    ranks = {layer.name: 3 * n // count for n, layer in enumerate(graph.layers)}
    taken = []
    gc.disable()  # what it takes depends on the objects of all tests before
    try:
        for _ in range(3):
            start = time.process_time()
            assert 3 == len({segment.rank for segment in partition(graph, ranks).segments})
            taken.append(time.process_time() - start)
    finally:
        gc.enable()
    return min(taken)


@pytest.mark.parametrize("make", [chain, branches, skips])
def test_eight_times_the_layers_take_no_more_than_some_eight_times_as_long(make):
    # Time in proportion to the square would make it 64.
    assert 20 > seconds(make, 8_000) / seconds(make, 1_000)
