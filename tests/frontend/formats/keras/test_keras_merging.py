"""Which normalisations a converter merges, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rankslice.framework.graph import AttributeValue, Bond, ByteRange, Graph, Layer, Tensor
from rankslice.frontend.formats.keras.merging import (
    merge_normalisations,
    merged_normalisations,
    split_warnings,
)
from rankslice.frontend.partition.partition import in_turns, partition

NOWHERE = ByteRange(Path("m.keras"), 0, 0)


def tensor(name: str) -> Tensor:
    return Tensor(name, "float32", (1, 4))


def layer(
    name: str, op: str, reads: str, attributes: tuple[tuple[str, AttributeValue], ...] = ()
) -> Layer:
    """Return a layer that makes a tensor of its own name."""
    inputs = tuple(tensor(read) for read in reads.split())
    return Layer(name, op, inputs, (tensor(name),), (), NOWHERE, attributes=attributes)


def graph(*layers: Layer, outputs: str = "y") -> Graph:
    given = tuple(tensor(name) for name in outputs.split())
    return Graph("m.keras", "keras", layers, (tensor("x"),), given, ())


PLAIN = graph(
    layer("conv", "Conv2D", "x"),
    layer("norm", "BatchNormalization", "conv"),
    layer("relu", "ReLU", "norm"),
    layer("y", "Dense", "relu"),
)


@pytest.mark.parametrize("op", ["Conv1D", "Conv2D", "Conv2DTranspose", "DepthwiseConv2D", "Dense"])
def test_a_normalisation_is_merged_into_the_weights_before_it(op: str) -> None:
    found = graph(layer("conv", op, "x"), layer("y", "BatchNormalization", "conv"))
    assert {"y": "conv"} == merged_normalisations(found)


def test_a_normalisation_is_not_merged_if_its_layer_is_read_elsewhere() -> None:
    found = graph(
        layer("conv", "Conv2D", "x"),
        layer("norm", "BatchNormalization", "conv"),
        layer("y", "Add", "conv norm"),
    )
    assert {} == merged_normalisations(found)


def test_a_normalisation_is_not_merged_into_a_layer_that_makes_a_model_output() -> None:
    layers = (layer("conv", "Conv2D", "x"), layer("y", "BatchNormalization", "conv"))
    assert {} == merged_normalisations(graph(*layers, outputs="conv y"))


def test_a_reader_that_no_output_depends_on_keeps_nothing_apart() -> None:
    found = graph(
        layer("conv", "Conv2D", "x"),
        layer("unused", "ReLU", "conv"),
        layer("y", "BatchNormalization", "conv"),
    )
    assert {"y": "conv"} == merged_normalisations(found)


def test_a_normalisation_is_not_merged_through_an_activation() -> None:
    relu = (("activation", "relu"),)
    found = graph(layer("conv", "Conv2D", "x", relu), layer("y", "BatchNormalization", "conv"))
    assert {} == merged_normalisations(found)


@pytest.mark.parametrize("op", ["Add", "MaxPooling2D", "Flatten", "BatchNormalization"])
def test_a_normalisation_is_not_merged_into_layers_without_factors(op: str) -> None:
    found = graph(layer("before", op, "x"), layer("y", "BatchNormalization", "before"))
    assert {} == merged_normalisations(found)


def segments(found: Graph, ranks: Sequence[int]) -> list[tuple[int, list[str]]]:
    """Return rank and layers of each segment, for the ranks of the layers in order."""
    given = {layer.name: rank for layer, rank in zip(found.layers, ranks, strict=True)}
    merged = merge_normalisations(found, given)
    cut = partition(merged.graph, merged.rank_of)
    assert [] == list(split_warnings(cut))
    return [(part.rank, [layer.name for layer in part.layers]) for part in cut.segments]


def test_a_cut_before_a_normalisation_goes_behind_it() -> None:
    assert [(0, ["conv", "norm"]), (1, ["relu", "y"])] == segments(PLAIN, [0, 1, 1, 1])


def test_a_normalisation_comes_back_from_another_rank() -> None:
    assert [(0, ["conv", "norm"]), (1, ["relu"]), (0, ["y"])] == segments(PLAIN, [0, 1, 1, 0])


def test_what_was_moved_is_told() -> None:
    ranks = {"conv": 0, "norm": 1, "relu": 1, "y": 1}
    (warning,) = merge_normalisations(PLAIN, ranks).warnings
    assert warning.endswith("not on those of the mapping: 'norm'")
    assert () == merge_normalisations(PLAIN, {**ranks, "norm": 0}).warnings


def test_a_rank_with_nothing_else_keeps_its_normalisation() -> None:
    ranks = {"conv": 0, "norm": 1, "relu": 0, "y": 0}
    merged = merge_normalisations(PLAIN, ranks)
    assert ((), ranks, ()) == (merged.warnings, merged.rank_of, merged.graph.bonds)
    (warning,) = split_warnings(partition(merged.graph, merged.rank_of))
    assert warning.startswith("cuts separate 'norm' from the layers before")


def test_a_split_is_told_once_though_ranks_take_turns() -> None:
    merged = merge_normalisations(PLAIN, {"conv": 0, "norm": 1, "relu": 0, "y": 0})
    cut = partition(merged.graph, merged.rank_of)
    assert [*split_warnings(cut)] == [*split_warnings(in_turns(cut, [(0, 1), (2, 3)]))]


def test_layer_and_normalisation_are_in_one_segment() -> None:
    """Two of one rank may otherwise be in two of its segments."""
    merged = merge_normalisations(PLAIN, dict.fromkeys(("conv", "norm", "relu", "y"), 0))
    assert (Bond(("conv", "norm"), "become one operator"),) == merged.graph.bonds


def test_layers_without_a_rank_are_let_be() -> None:
    found = graph(*PLAIN.layers, layer("unused", "ReLU", "x"))
    ranks = {"conv": 0, "norm": 1, "relu": 1, "y": 1}
    assert {**ranks, "norm": 0} == merge_normalisations(found, ranks).rank_of
