"""A Keras model file as a :class:`Graph`: calls of layers, and the tensors between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.graph import AttributeValue, Bond, ByteRange, Graph, Layer, Tensor, Weight
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats.input_shapes import open_shape_mistake, shape_mistakes
from rankslice.frontend.formats.keras.calls import Call, CallGraph, call_graph_of, replay
from rankslice.frontend.formats.keras.file import check_keras_file
from rankslice.frontend.formats.keras.tensorflow import first_line, load_keras, quiet

KERAS_SUFFIXES = ("keras", "h5", "hdf5")
"""Suffixes of files of Keras models."""

_BATCH_NORMALIZATION = ("gamma", "beta", "moving_mean", "moving_variance")
_NOT_SHOWN = frozenset({"name", "seed", "trainable"})
_LONGEST_ATTRIBUTE = 16
_SEED = "seed_generator_state"


@dataclass(frozen=True, slots=True)
class KerasModel:
    """A Keras model file: its graph, and what its sub-models are made of."""

    path: Path
    graph: Graph
    call_graph: CallGraph = field(repr=False)

    def calls(self, names: Iterator[str]) -> tuple[Call, ...]:
        """Return the calls of some layers, in the graph's order."""
        wanted = set(names)
        return tuple(call for call in self.call_graph.calls if call.name in wanted)


def read_keras(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> KerasModel:
    """Return the graph of a Keras model: a ``.keras`` archive or an HDF5 file.

    Each call of a layer is a layer of the graph. The batch is one frame, unless the file or
    ``shapes`` say otherwise. The file is checked before TensorFlow loads it, and refused if any
    code would run that is not Keras's.

    Args:
        path: the model file.
        shapes: sizes of inputs that the file leaves open, by the input's name.

    Raises:
        RankSliceError: the file is not such a model, or one that cannot be sliced; or TensorFlow is
            not installed.
    """
    check_keras_file(path)
    model = load_keras(path)
    where = str(path)
    raise_mistakes(_model_mistakes(where, model))
    call_graph = call_graph_of(model)
    raise_mistakes(_graph_mistakes(where, call_graph))
    raise_mistakes(_shape_mistakes(where, call_graph, shapes or {}))
    symbols = _symbols(path, call_graph, shapes or {})
    return KerasModel(path, _Graph(path, call_graph, symbols).graph(), call_graph)


def _model_mistakes(where: str, model: Any) -> Iterator[Mistake]:
    if not getattr(model, "built", True) or not getattr(model, "inputs", None):
        found = "its layers do not know what they read"
        yield Mistake(where, found, "give the model an Input as its first layer, and save it again")


def _graph_mistakes(where: str, call_graph: CallGraph) -> Iterator[Mistake]:
    for name, tensor in call_graph.inputs:
        kinds = [kind for kind in ("sparse", "ragged") if getattr(tensor, kind, False)]
        if kinds:
            here = f"{where}: input {quoted(name)}"
            yield Mistake(here, f"is {joined(kinds)}", "expected a dense tensor")
    if not call_graph.calls:
        yield Mistake(where, "has no layers")


def _shape_mistakes(
    where: str, call_graph: CallGraph, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[Mistake]:
    declared = {
        name: ["?" if size is None else int(size) for size in tensor.shape]
        for name, tensor in call_graph.inputs
    }
    yield from shape_mistakes(where, declared, shapes)
    for name, sizes in declared.items():
        batch, *others = sizes or [1]
        if "?" in others and name not in shapes:
            yield open_shape_mistake(where, name, [1 if batch == "?" else batch, *others], 224)


def _symbols(
    path: Path, call_graph: CallGraph, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Return symbolic tensors of known shapes for all that the calls read and make."""
    import keras

    symbols = {}
    for name, tensor in call_graph.inputs:
        shape = shapes.get(name) or (tensor.shape[0] or 1, *tensor.shape[1:])
        symbols[name] = keras.Input(batch_shape=shape, dtype=tensor.dtype, name=name)
    try:
        with quiet():
            return replay(call_graph.calls, symbols)
    except Exception as error:  # a layer that finds these sizes too small, say
        where = f"{path}: --shape" if shapes else str(path)
        raise_mistakes([Mistake(where, f"a layer cannot work on it: {first_line(error)}")])
        raise


class _Graph:
    """Makes records of the calls of one model."""

    def __init__(self, path: Path, call_graph: CallGraph, symbols: Mapping[str, Any]) -> None:
        self._path, self._call_graph, self._symbols = path, call_graph, symbols
        self._nowhere = ByteRange(path, 0, 0)
        self._weights: dict[int, Weight] = {}
        self._names: set[str] = set()

    def graph(self) -> Graph:
        layers = tuple(map(self._layer, self._call_graph.calls))
        return Graph(
            name=self._path.name,
            format="keras",
            layers=layers,
            inputs=tuple(self._tensor(name) for name, _ in self._call_graph.inputs),
            outputs=tuple(map(self._tensor, self._call_graph.outputs)),
            weights=tuple(self._weights.values()),
            bonds=tuple(self._bonds(layers)),
        )

    def _layer(self, call: Call) -> Layer:
        inputs = tuple(map(self._tensor, dict.fromkeys(call.reads.values())))
        weights = {name: self._weight(item) for name, item in _variables(call.operation)}
        operands: tuple[Tensor | Weight | None, ...] = (*inputs, *weights.values())
        op = type(call.operation).__name__
        if op == "BatchNormalization":
            operands = (*inputs, *map(weights.get, _BATCH_NORMALIZATION))
        return Layer(
            name=call.name,
            op=op,
            inputs=inputs,
            outputs=tuple(map(self._tensor, call.makes)),
            weights=tuple(dict.fromkeys(weights.values())),
            record=self._nowhere,
            operands=operands,
            attributes=tuple(_attributes(call.operation)),
        )

    def _tensor(self, name: str) -> Tensor:
        symbol = self._symbols[name]
        shape = tuple(symbol.shape)
        return Tensor(name, str(symbol.dtype), None if None in shape else shape)

    def _weight(self, variable: Any) -> Weight:
        if id(variable) not in self._weights:
            name = variable.path
            while name in self._names:
                name += "'"
            self._names.add(name)
            tensor = Tensor(name, str(variable.dtype), tuple(variable.shape))
            self._weights[id(variable)] = Weight(
                name, tensor.dtype, tuple(variable.shape), tensor.nbytes or 0, self._nowhere, None
            )
        return self._weights[id(variable)]

    def _bonds(self, layers: tuple[Layer, ...]) -> Iterator[Bond]:
        """Yield the layers that hand on which steps of a sequence count: no file has these."""
        for layer in layers:
            for tensor in layer.outputs:
                if getattr(self._symbols[tensor.name], "_keras_mask", None) is None:
                    continue
                readers = [other.name for other in layers if tensor in other.inputs]
                if readers:
                    yield Bond((layer.name, *readers), "share the mask of a sequence")


def _variables(operation: Any) -> Iterator[tuple[str, Any]]:
    """Yield the weights of a layer with their names in it; operations have none."""
    for variable in getattr(operation, "weights", ()):
        if not variable.path.endswith(_SEED):
            yield variable.path.removeprefix(f"{operation.path}/"), variable


def _attributes(operation: Any) -> Iterator[tuple[str, AttributeValue]]:
    """Yield the settings that are numbers, text or short lists of numbers."""
    try:
        config = operation.get_config()
    except Exception:  # some operations cannot tell
        return
    for name, value in config.items():
        if name in _NOT_SHOWN or value is None:
            continue
        if isinstance(value, int | float | str):
            yield name, value
        elif _is_short_list(value):
            yield name, tuple(value)


def _is_short_list(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) > _LONGEST_ATTRIBUTE:
        return False
    return all(isinstance(item, int) for item in value)
