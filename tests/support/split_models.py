"""Models whose layers are split, sliced and run part by part in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx_models import Arrays, random_inputs, run

from rankslice.framework.graph import Tensor
from rankslice.framework.mapping import Assignment, Block
from rankslice.frontend.formats import format_of, read_model, submodel_files
from rankslice.frontend.formats.model_format import Model
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import Partition, partition
from rankslice.frontend.rewriting.made_layers import Rewritten
from rankslice.frontend.rewriting.split import split_layers

CLOSE = 1e-5
"""How much a float may differ from the unsliced model's, of the range of the tensor."""


def block(
    layers: Sequence[str],
    by: str,
    parts: Sequence[tuple[int, float]] = ((0, 1), (1, 1)),
    halo: str = "recompute",
    where: str = "mapping.json: 0[0]",
) -> Block:
    return Block(where, tuple(layers), by, halo, tuple(parts))


def rewritten(
    model: Model, blocks: Sequence[Block], entry_of: Mapping[str, int], count: int
) -> tuple[Model, Rewritten]:
    """Split the blocks' layers; all others are on the entries that are given, or on the first."""
    inside = {name for one in blocks for name in one.layers}
    others = [layer.name for layer in model.graph.layers if layer.name not in inside]
    whole = [tuple(n for n in others if entry_of.get(n, 0) == entry) for entry in range(count)]
    kind = format_of(model.graph)
    assert kind.with_made_layers
    split = split_layers(
        model.graph,
        Assignment(tuple(whole), tuple(blocks)),
        kind.forms(model),
        kind.channels_last,
    )
    return kind.with_made_layers(model, split.graph), split


def sliced(
    path: Path,
    blocks: Sequence[Block],
    folder: Path,
    entry_of: Mapping[str, int] | None = None,
    count: int = 0,
) -> tuple[Partition, Rewritten]:
    """Write the sub-models of a split model, and check what always holds of them."""
    model = read_model(path)
    count = count or 1 + max(entry for one in blocks for entry, _ in one.parts)
    made, split = rewritten(model, blocks, entry_of or {}, count)
    cut = partition(made.graph, split.assignment.entry_of, group_of=split.group_of)
    folder.mkdir(exist_ok=True)
    for number, segment in enumerate(cut.segments):
        part = folder / f"{number}{path.suffix}"
        write_submodel(submodel_files(made, segment, name=part.name), part)
    _check(made, split, cut)
    again, second = rewritten(model, blocks, entry_of or {}, count)
    assert again.graph == made.graph
    assert (second.assignment, second.group_of) == (split.assignment, split.group_of)
    return cut, split


def _check(model: Model, split: Rewritten, cut: Partition) -> None:
    makers = [tensor.name for layer in model.graph.layers for tensor in layer.outputs]
    assert len(set(makers)) == len(makers)
    assert len({layer.name for layer in model.graph.layers}) == len(model.graph.layers)
    assert {name for layers in split.assignment.layers for name in layers} == {
        *split.assignment.entry_of
    }
    sent = [tensor.name for segment in cut.segments for tensor in segment.outputs]
    assert len(set(sent)) == len(sent)


def _run(path: Path, inputs: Arrays, results: Sequence[Tensor]) -> Arrays:
    """Return what a file computes of inputs in the order of the file."""
    if path.suffix == ".onnx":
        return run(path, inputs)
    from litert import Runner  # skips the tests if there is no LiteRT

    made = Runner(path, xnnpack=True).run([*inputs.values()])
    return {tensor.name: array for tensor, array in zip(results, made, strict=True)}


def run_sliced(cut: Partition, folder: Path, suffix: str, inputs: Arrays) -> Arrays:
    values = dict(inputs)
    for number, segment in enumerate(cut.segments):
        given = {tensor.name: values[tensor.name] for tensor in segment.inputs}
        values |= _run(folder / f"{number}{suffix}", given, segment.outputs)
    return values


def check_split(
    path: Path,
    blocks: Sequence[Block],
    folder: Path,
    entry_of: Mapping[str, int] | None = None,
    count: int = 0,
    inputs: Arrays | None = None,
    tolerance: float = CLOSE,
) -> tuple[Partition, Rewritten]:
    """Compare the sliced model with the unsliced one: integers bit by bit, floats by range."""
    cut, split = sliced(path, blocks, folder, entry_of, count)
    graph = read_model(path).graph
    inputs = inputs or random_inputs(graph.inputs)
    values = run_sliced(cut, folder, path.suffix, inputs)
    for name, expected in _run(path, inputs, graph.outputs).items():
        made = values[name]
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind == "f":
            largest = float(np.ptp(expected)) or 1.0
            difference = float(np.abs(made - expected).max(initial=0))
            assert difference <= tolerance * largest, (name, difference / largest)
        else:
            np.testing.assert_array_equal(made, expected, strict=True)
    return cut, split
