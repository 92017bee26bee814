"""Models run slice by slice in this process, against the unsliced one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from rankslice.backend.runtime import job
from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.random_source import RandomSource
from rankslice.framework.graph import Graph, Tensor, constant_layers
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.types import element_type
from rankslice.frontend.formats.onnx.writer import SINGLE_FILE_LIMIT, onnx_submodel
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import Partition, partition

Shapes = Mapping[str, tuple[int, ...]]

Values = dict[str, NDArray[Any]]
"""Tensors by name, as the runtime holds them."""


def in_turn(graph: Graph, ranks: int = 2) -> dict[str, int]:
    """Deal the layers out to the ranks in turn; constant ones have none."""
    constant = constant_layers(graph)
    names = [layer.name for layer in graph.layers if layer.name not in constant]
    return {name: number % ranks for number, name in enumerate(names)}


def random_values(graph: Graph, seed: int = 0) -> Values:
    specs = [replace(tensor.in_job(), symbols=()) for tensor in graph.inputs]
    values = {spec.name: _empty(spec) for spec in specs}
    RandomSource(RunOptions(seed=seed), specs).read(0, list(values.values()))
    return values


def run_whole(model: OnnxModel, inputs: Values, *, exact: bool = True) -> Values:
    return _run(model.path, model.graph.inputs, model.graph.outputs, inputs, exact)


def run_sliced(
    model: OnnxModel,
    cut: Partition,
    folder: Path,
    inputs: Values,
    *,
    exact: bool = True,
    limit: int = SINGLE_FILE_LIMIT,
) -> Values:
    """Write the segments and run them one after the other; return all that they exchange."""
    values = dict(inputs)
    for number, segment in enumerate(cut.segments):
        path = folder / f"segment {number}.onnx"
        write_submodel(onnx_submodel(model, segment, path.name, limit=limit), path)
        values |= _run(path, segment.inputs, segment.outputs, values, exact)
    return values


def check_slices(
    model: OnnxModel,
    folder: Path,
    ranks: Mapping[str, int] | None = None,
    inputs: Values | None = None,
    *,
    limit: int = SINGLE_FILE_LIMIT,
) -> Partition:
    """Expect the bits of the unsliced model from its segments; by default each layer is one."""
    cut = partition(model.graph, in_turn(model.graph) if ranks is None else ranks)
    given = random_values(model.graph) if inputs is None else inputs
    found = run_sliced(model, cut, folder, given, limit=limit)
    for name, expected in run_whole(model, given).items():
        assert expected.tobytes() == found[name].tobytes(), name
    return cut


def check_crossing(model: OnnxModel, folder: Path, shapes: Shapes) -> None:
    """Expect the bits of the unsliced model in all tensors that leave a layer for another rank.

    Args:
        model: its values lie in its own file.
        folder: where to write.
        shapes: sizes that the model leaves open.
    """
    cut = partition(model.graph, in_turn(model.graph))
    crossing = {tensor.name: tensor for segment in cut.segments for tensor in segment.outputs}
    content = onnx.load(model.path)
    given = {value.name for value in content.graph.output}
    content.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, element_type(tensor.dtype), tensor.shape)
        for name, tensor in crossing.items()
        if name not in given
    )
    onnx.save(content, folder / "declared.onnx")
    declared = read_onnx(folder / "declared.onnx", GivenSizes(shapes))
    inputs = random_values(model.graph)
    found = run_sliced(model, cut, folder, inputs)
    expected = run_whole(declared, inputs)
    assert set(crossing) == set(expected)
    assert [] == [
        name for name, value in expected.items() if value.tobytes() != found[name].tobytes()
    ]


def _run(
    path: Path, reads: Sequence[Tensor], makes: Sequence[Tensor], values: Values, exact: bool
) -> Values:
    inputs, outputs = (
        [replace(t.in_job(), symbols=()) for t in tensors] for tensors in (reads, makes)
    )
    engine = open_engine("onnxruntime", EngineSettings(exact=exact))
    outputs = [spec for spec in outputs if spec not in inputs]  # engines do not write these
    engine.load(path, inputs, outputs)
    made = {spec.name: _empty(spec) for spec in outputs}
    engine.run([values[spec.name] for spec in inputs], list(made.values()))
    engine.close()
    return {**made, **{t.name: values[t.name] for t in makes if t.name in values}}


def _empty(spec: job.Tensor) -> NDArray[Any]:
    dtype, shape = spec.storage
    return np.empty(shape, dtype)
