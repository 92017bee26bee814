"""Spans are cut out of a model as its partition cuts segments."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st
from line_graphs import line_graph
from strategies import random_graphs

from rankslice.framework.graph import Bond, Graph
from rankslice.frontend.partition.partition import SpanSegments, partition

CHAIN = line_graph("a: x -> p\n b: p -> q\n c: q p -> y", "y")


def names(tensors: object) -> list[str]:
    return [tensor.name for tensor in tensors]  # type: ignore[attr-defined]


@given(random_graphs(), st.data())
def test_a_span_reads_and_gives_out_what_its_segment_does(
    graph: Graph, data: st.DataObject
) -> None:
    spans = SpanSegments(graph)
    first = data.draw(st.integers(0, len(spans.layers) - 1))
    last = data.draw(st.integers(first, len(spans.layers) - 1))
    rank_of = {
        layer.name: 1 if first <= number <= last else 0 if number < first else 2
        for number, layer in enumerate(spans.layers)
    }
    (expected,) = [s for s in partition(graph, rank_of).segments if s.rank == 1]
    found = spans.segment(first, last)
    assert expected.layers == found.layers
    assert set(expected.inputs) == set(found.inputs)
    assert expected.outputs == found.outputs


def test_the_whole_model_reads_the_models_inputs_and_gives_its_outputs() -> None:
    whole = SpanSegments(CHAIN).segment(0, 2)
    assert (["x"], ["y"]) == (names(whole.inputs), names(whole.outputs))


def test_what_a_later_layer_skips_to_is_given_out() -> None:
    assert ["p", "q"] == names(SpanSegments(CHAIN).segment(0, 1).outputs)


def test_layers_that_are_bound_cannot_be_apart() -> None:
    spans = SpanSegments(replace(CHAIN, bonds=(Bond(("a", "b"), "share a variable"),)))
    assert "layers 'a' and 'b' cannot be apart" == spans.fault(0, 0)
    assert ["", ""] == [spans.fault(0, 1), spans.fault(2, 2)]


def test_a_tensor_of_unknown_size_cannot_be_cut() -> None:
    unknown = {name: replace(CHAIN.layers[0].outputs[0], shape=None) for name in "p"}

    def known(tensors: object) -> tuple[object, ...]:
        return tuple(unknown.get(tensor.name, tensor) for tensor in tensors)  # type: ignore[attr-defined]

    layers = tuple(
        replace(layer, inputs=known(layer.inputs), outputs=known(layer.outputs))
        for layer in CHAIN.layers
    )
    spans = SpanSegments(replace(CHAIN, layers=layers))
    assert "tensor 'p' cannot be sent: its sizes have no known bound" == spans.fault(0, 0)
    assert "" == spans.fault(0, 2)
