"""Where a model can be cut, and what would cross there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from line_graphs import line_graph
from onnx_models import LIGHT_MODELS, read
from plans import planned
from strategies import random_graphs

from rankslice.frontend.costs.costs import layer_costs
from rankslice.frontend.costs.cuts import cuts, notable_cuts
from rankslice.frontend.formats.onnx.reader import read_onnx

SIZE = 16
"""Bytes of every tensor of a line graph."""

SKIP = "a: x -> t\n b: t -> u\n c: u -> v\n d: v t -> y"


def cuts_of(graph):
    return cuts(graph, layer_costs(graph))


def light_cuts(name):
    (path,) = (path for path in LIGHT_MODELS if name in path.name)
    return cuts_of(read_onnx(path).graph)


def crossing(graph):
    return [(cut.after, [tensor.name for tensor in cut.tensors]) for cut in cuts_of(graph)]


def test_a_skip_connection_crosses_every_cut_between_its_ends():
    graph = line_graph(SKIP, outputs="y")
    assert [("a", ["t"]), ("b", ["t", "u"]), ("c", ["t", "v"])] == crossing(graph)
    assert [SIZE, 2 * SIZE, 2 * SIZE] == [cut.nbytes for cut in cuts_of(graph)]


def test_a_tensor_with_several_readers_crosses_once():
    graph = line_graph("a: x -> t\n b: t -> u\n c: t -> v\n d: u v -> y", outputs="y")
    assert ("a", ["t"]) == crossing(graph)[0]


def test_an_input_that_is_read_late_and_an_output_that_is_made_early_cross():
    graph = line_graph("a: x -> y\n b: y z -> w", inputs="x z", outputs="y w")
    assert [("a", ["z", "y"])] == crossing(graph)


def test_what_constant_layers_make_does_not_cross():
    graph = line_graph("c: -> k\n a: x -> t\n b: t k -> y", outputs="y")
    assert [("a", ["t"])] == crossing(graph)


def test_a_model_of_one_layer_has_no_cut():
    assert () == cuts_of(line_graph("a: x -> y", outputs="y"))


@given(random_graphs())
def test_what_crosses_a_cut_is_what_a_plan_with_that_cut_sends(graph):
    position = {layer.name: index for index, layer in enumerate(graph.layers)}
    for cut in cuts_of(graph):
        ranks = {name: int(index > position[cut.after]) for name, index in position.items()}
        plan = planned(graph, ranks)
        sent = {channel.tensor for channel in plan.channels}
        crossing = {tensor.name for tensor in cut.tensors}
        assert crossing <= sent
        assert sent - crossing <= announcements(graph, plan)


def announcements(graph, plan):
    """Return the inputs that tell segments of a frame of which they need nothing."""
    layers = {layer.name: layer for layer in graph.layers}
    announced = set()
    for segment in plan.segments:
        own = [layers[name] for name in segment.layers]
        made = {tensor.name for layer in own for tensor in layer.outputs}
        read = {tensor.name for layer in own for tensor in layer.inputs}
        if read <= made:
            announced.add(segment.inputs[0])
    return announced


def test_a_cut_tells_what_is_before_it():
    first, *_, last = light_cuts("vgg19")
    assert ("n0", "n1") == (first.after, first.before)
    assert pytest.approx(86_704_128 / 19_632_062_464) == first.share
    assert 1 == last.share


def test_a_tensor_of_unknown_size_makes_a_cut_impossible(tmp_path):
    model = read(
        tmp_path,
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[1] y)'
        "{ [a] i = Cast<to = 7>(x) [b] f = Expand(x, i) [c] y = ReduceSum<keepdims = 1>(f) }",
    )
    assert [48, None] == [cut.nbytes for cut in cuts_of(model.graph)]
    assert [48] == [cut.nbytes for cut in notable_cuts(cuts_of(model.graph), 9)]


def test_notable_cuts_are_the_narrowest_of_their_parts():
    every = light_cuts("resnet50")
    notable = notable_cuts(every, 9)
    assert sorted(cut.nbytes for cut in notable) == [cut.nbytes for cut in notable]
    for cut in notable:
        rivals = [one for one in every if int(one.share * 9) == int(cut.share * 9) and one.divides]
        assert min(rival.nbytes for rival in rivals) == cut.nbytes
    assert len({int(cut.share * 9) for cut in notable}) == len(notable)


def test_cuts_that_leave_one_side_with_next_to_nothing_are_not_notable():
    every = light_cuts("resnet50")
    assert min(cut.nbytes for cut in every) == 4_000
    assert min(cut.nbytes for cut in notable_cuts(every, 9)) == 401_408


def test_a_cut_that_divides_the_parameters_is_notable():
    graph = line_graph("a: x -> t\n b: t -> u\n c: u -> y", outputs="y")
    costs = [
        replace(cost, macs=macs, new_parameters=parameters)
        for cost, macs, parameters in zip(
            layer_costs(graph), (1000, 0, 1), (100, 0, 900), strict=True
        )
    ]
    assert ["a"] == [cut.after for cut in notable_cuts(cuts(graph, costs), 1)][:1]


def test_all_cuts_are_notable_where_there_is_room_and_none_where_none_is_wanted():
    every = light_cuts("resnet50")
    assert len(every) == len(notable_cuts(every, len(every)))
    assert () == notable_cuts(every, 0)
