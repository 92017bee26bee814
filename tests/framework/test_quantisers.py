from dataclasses import replace

import pytest
from line_graphs import line_graph

from rankslice.framework.graph import Bond, Graph
from rankslice.framework.quantisers import copied_layers, quantiser_ranks

OPS = {"q": "QuantizeLinear", "d": "DequantizeLinear"}
LINES = """
q1: x -> a
d1: a -> b
conv1: b -> c
q2: c -> d
d2: d -> e
conv2: e -> f
conv3: e -> g
q3: f -> h
d3: h -> i
add: i g -> j
q4: j -> k
d4: k -> y
"""


def quantised(lines: str = LINES, outputs: str = "y") -> Graph:
    """Return a graph in which layers whose names are ``q`` or ``d`` and a digit quantise."""
    graph = line_graph(lines, outputs)
    layers = (replace(x, op=OPS[x.name[0]]) if len(x.name) == 2 else x for x in graph.layers)
    return replace(graph, layers=tuple(layers))


RANKS = {"conv1": 0, "conv2": 1, "conv3": 2, "add": 1}


def test_dequantisers_are_copied_unless_they_make_a_model_output() -> None:
    assert {"d1", "d2", "d3"} == copied_layers(quantised(), RANKS)


def test_quantisers_and_the_last_dequantiser_follow_the_data() -> None:
    assert {"q1": 0, "q2": 0, "q3": 1, "q4": 1, "d4": 1} == quantiser_ranks(quantised(), RANKS)


def test_those_with_a_rank_keep_it() -> None:
    ranks = {**RANKS, "d2": 2, "q3": 0}
    assert {"d1", "d3"} == copied_layers(quantised(), ranks)
    assert {"q1": 0, "q2": 0, "q4": 1, "d4": 1} == quantiser_ranks(quantised(), ranks)


def test_a_quantiser_behind_a_quantiser_follows_it() -> None:
    lines = LINES.replace("d2: d -> e", "d5: d -> d'\nq5: d' -> d''\nd2: d'' -> e")
    assert 0 == quantiser_ranks(quantised(lines), RANKS)["q5"]


def test_quantisers_between_layers_without_a_rank_have_none() -> None:
    ranks = {"conv2": 1, "conv3": 2, "add": 1}
    assert {"q3", "q4", "d4"} == set(quantiser_ranks(quantised(), ranks)) - {"q1", "q2"}
    assert {} == quantiser_ranks(quantised(), {})


def test_a_dequantiser_that_cannot_be_apart_from_others_is_not_copied() -> None:
    graph = replace(quantised(), bonds=(Bond(("d2", "conv2"), "share a variable"),))
    assert "d2" not in copied_layers(graph, RANKS)
    assert 0 == quantiser_ranks(graph, RANKS)["d2"]


@pytest.mark.parametrize("op", ["DEQUANTIZE", "com.microsoft.DequantizeLinear"])
def test_other_names_of_dequantisers_are_known(op: str) -> None:
    graph = line_graph("a: x -> b\nd: b -> c\ne: c -> y", "y")
    first, second, third = graph.layers
    graph = replace(graph, layers=(first, replace(second, op=op), third))
    assert {"d"} == copied_layers(graph, {"a": 0, "e": 1})
