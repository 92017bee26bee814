"""Sub-models of a Keras model: some of its calls, done again and converted to ``.tflite``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Tensor
from rankslice.frontend.formats.input_shapes import replace_open
from rankslice.frontend.formats.keras.calls import Call, function_of
from rankslice.frontend.formats.keras.reader import KerasModel
from rankslice.frontend.formats.keras.tensorflow import first_line, quiet, tensorflow
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.frontend.formats.pieces import SubModelFiles, piece_bytes
from rankslice.frontend.formats.tflite.object import read_object
from rankslice.frontend.formats.tflite.renamed import renamed_model
from rankslice.frontend.partition.partition import PartitionSegment


def keras_submodel(
    model: KerasModel, part: PartitionSegment, name: str, conversion: Conversion = FLOAT32
) -> SubModelFiles:
    """Return a ``.tflite`` file that does some calls of a Keras model."""
    lite = tensorflow(name).lite
    layers, inputs, outputs = part.layers, part.inputs, part.outputs
    calls = model.calls(layer.name for layer in layers)
    with quiet():
        try:
            function = _function(calls, inputs, outputs)
            converter = lite.TFLiteConverter.from_concrete_functions([function])
            _configure(converter, conversion.kind)
            if conversion.kind == "int8":
                converter.representative_dataset = _representative(model, inputs, conversion)
            content: bytes = converter.convert()
        except Exception as error:  # of many kinds
            raise RankSliceError(
                Mistake(
                    f"{name}: layers {layers[0].name!r} to {layers[-1].name!r}",
                    f"TensorFlow cannot convert them: {first_line(error)}",
                    "it may with fixed sizes (--shape)" if any(t.is_open for t in inputs) else "",
                )
            ) from None
    with tempfile.TemporaryDirectory(prefix="rankslice") as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        files = renamed_model(file, inputs, outputs)
        return replace(files, model=(b"".join(map(piece_bytes, files.model)),))


def _function(calls: Sequence[Call], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
    signature = {
        tensor.name: (replace_open(tensor.shape or (), tensor.symbols, None), tensor.dtype)
        for tensor in inputs
    }
    return function_of(calls, signature, lambda values: [values[tensor.name] for tensor in outputs])


def _configure(converter: Any, kind: str) -> None:
    tf = tensorflow("")
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        # Operators without integer kernels stay in float32.
        builtins = (tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS)
        converter.target_spec.supported_ops = list(builtins)


def kind_of(path: Path) -> str:
    """Return the kind of conversion with which :func:`keras_submodel` made a file.

    A file without weights that are large enough for ``dynamic`` is of ``float32``.
    """
    model = read_object(path)
    subgraphs = model["subgraphs"]
    if any(item["operator"] == "QUANTIZE" for graph in subgraphs for item in graph["operators"]):
        return "int8"
    filled = ["data" in buffer or buffer["size"] for buffer in model["buffers"]]
    tensors = [tensor for graph in subgraphs for tensor in graph["tensors"]]
    weights = {tensor["type"] for tensor in tensors if filled[tensor["buffer"]]}
    return "float16" if "float16" in weights else "dynamic" if "int8" in weights else "float32"


def _representative(
    model: KerasModel, wanted: Sequence[Tensor], conversion: Conversion
) -> Callable[[], Iterator[list[NDArray[Any]]]]:
    assert conversion.frames is not None
    calls = _leading_to(model, {tensor.name for tensor in wanted})
    function = _function(calls, model.graph.inputs, wanted)
    frames = conversion.frames

    def values() -> Iterator[list[NDArray[Any]]]:
        for frame in frames():
            yield [np.asarray(value) for value in function(*map(tensorflow("").constant, frame))]

    return values


def _leading_to(model: KerasModel, tensors: set[str]) -> tuple[Call, ...]:
    needed, wanted = [], set(tensors)
    for call in reversed(model.call_graph.calls):
        if not wanted.isdisjoint(call.makes):
            needed.append(call)
            wanted |= set(call.reads.values())
    return tuple(reversed(needed))
