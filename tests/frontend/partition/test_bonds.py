from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from line_graphs import line_graph
from strategies import mapped_graphs

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Bond, Graph, constant_layers
from rankslice.frontend.partition.partition import partition, used_layers

CHAIN = """
a: x -> p
b: p -> q
c: q -> r
d: r -> y
"""

DIAMONDS = """
a: x -> p
b: x -> q
c: q -> r
d: p -> s
e: r s -> y
"""


def bound(graph: Graph, *groups: str) -> Graph:
    bonds = tuple(Bond(tuple(names), "share a variable") for names in groups)
    layers = {name for names in groups for name in names}
    return replace(
        graph,
        layers=tuple(replace(x, deterministic=x.name not in layers) for x in graph.layers),
        bonds=bonds,
    )


def segments(graph: Graph, ranks: dict[str, int]) -> list[str]:
    found = partition(graph, ranks).segments
    return ["".join(layer.name for layer in segment.layers) for segment in found]


def test_layers_that_share_something_are_in_one_segment():
    graph = bound(line_graph("a: x -> p\nb: x -> q\nc: p q -> y", "y"), "ab")
    assert ["ab", "c"] == segments(graph, {"a": 0, "b": 0, "c": 1})


def test_layers_between_them_are_in_that_segment_too():
    assert ["a", "bcd"] == segments(
        bound(line_graph(CHAIN, "y"), "bd"), {"a": 1, "b": 0, "c": 0, "d": 0}
    )


def test_a_layer_between_them_on_another_rank_is_a_mistake():
    with pytest.raises(RankSliceError) as caught:
        partition(bound(line_graph(CHAIN, "y"), "bd"), {"a": 0, "b": 0, "c": 1, "d": 0})
    message = str(caught.value)
    assert "layers 'b' to 'd': cannot be on several ranks: 'b', 'd' share a variable" in message
    assert "map them and those between to one key (now rank 0: 'b', 'd', rank 1: 'c')" in message


def test_two_bonds_that_would_wait_for_each_other_are_one():
    graph = bound(line_graph(DIAMONDS, "y"), "ac", "bd")
    assert ["abcd", "e"] == segments(graph, {**dict.fromkeys("abcd", 0), "e": 1})
    with pytest.raises(RankSliceError, match="cannot be on several ranks"):
        partition(graph, {"a": 0, "b": 1, "c": 0, "d": 1, "e": 1})


def test_a_layer_that_only_sets_what_another_reads_is_used():
    lines = "get: -> v\nadd: x v -> y\nset: y ->\nother: x ->"
    graph = bound(line_graph(lines, "y"), ("get", "set"))
    assert {"get", "add", "set"} == used_layers(graph)


@st.composite
def bound_graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, int]]:
    graph, ranks = draw(mapped_graphs(max_ranks=3))
    free = [layer.name for layer in graph.layers if layer.name not in constant_layers(graph)]
    groups = draw(st.lists(st.lists(st.sampled_from(free), min_size=1, unique=True), max_size=3))
    return replace(graph, bonds=tuple(Bond(tuple(names), "are bound") for names in groups)), ranks


@given(bound_graphs())
def test_bound_layers_are_together_or_refused(drawn):
    graph, ranks = drawn
    try:
        found = partition(graph, ranks).segments
    except RankSliceError:
        found = partition(graph, dict.fromkeys(ranks, 0)).segments
    home = {layer.name: n for n, segment in enumerate(found) for layer in segment.layers}
    for bond in graph.bonds:
        assert len({home[name] for name in bond.layers if name in home}) < 2


@given(bound_graphs())
def test_segments_with_bonds_can_run_one_after_the_other(drawn):
    graph, ranks = drawn
    for assigned in (dict.fromkeys(ranks, 0), ranks):
        try:
            found = partition(graph, assigned).segments
        except RankSliceError:
            assert assigned is ranks
            continue
        there = {tensor.name for tensor in graph.inputs}
        for segment in found:
            assert {tensor.name for tensor in segment.inputs} <= there
            there |= {tensor.name for tensor in segment.outputs}


def test_of_many_reasons_to_be_together_the_first_are_told():
    lines = "\n".join(f"n{n}: {'x' if not n else f't{n - 1}'} -> t{n}" for n in range(10))
    bonds = tuple(Bond((f"n{n}", f"n{n + 1}"), f"share {n}") for n in range(9))
    graph = replace(line_graph(lines, "t9"), bonds=bonds)
    with pytest.raises(RankSliceError) as caught:
        partition(graph, {layer.name: n // 5 for n, layer in enumerate(graph.layers)})
    (mistake,) = caught.value.mistakes
    assert "layers 'n0' to 'n9'" in mistake.where
    assert mistake.found.endswith("'n2', 'n3' share 2, ... and 6 more")
