"""A Keras model file as a :class:`Graph`: calls of layers, and the tensors between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.graph import AttributeValue, Bond, ByteRange, Graph, Layer, Tensor, Weight
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats.input_shapes import (
    NO_SIZES,
    GivenSizes,
    InputSizes,
    replace_open,
    settle_inputs,
)
from rankslice.frontend.formats.keras.calls import Call, CallGraph, call_graph_of, function_of
from rankslice.frontend.formats.keras.file import check_keras_file
from rankslice.frontend.formats.keras.tensorflow import first_line, load_keras, quiet

_BATCH_NORMALIZATION = ("gamma", "beta", "moving_mean", "moving_variance")
_NOT_SHOWN = frozenset({"name", "seed", "trainable"})
_MAX_ATTRIBUTE = 16
_SEED = "seed_generator_state"
_EXAMPLE = 224


@dataclass(frozen=True, slots=True)
class KerasModel:
    """A Keras model file: its graph, and what its sub-models are made of."""

    path: Path
    graph: Graph
    call_graph: CallGraph = field(repr=False)

    def calls(self, names: Iterator[str]) -> tuple[Call, ...]:
        wanted = set(names)
        return tuple(call for call in self.call_graph.calls if call.name in wanted)


def read_keras(path: Path, sizes: GivenSizes = NO_SIZES) -> KerasModel:
    """Return the graph of a Keras model: a ``.keras`` archive or an HDF5 file.

    Each call of a layer is a layer of the graph. The batch is one frame, unless the file or
    ``sizes`` say otherwise. The file is checked before TensorFlow loads it, and refused if any
    code would run that is not Keras's.
    """
    check_keras_file(path)
    model = load_keras(path)
    where = str(path)
    raise_mistakes(_model_mistakes(where, model))
    call_graph = call_graph_of(model)
    raise_mistakes(_graph_mistakes(where, call_graph))
    inputs = _inputs(where, call_graph, sizes)
    largest = _traced(where, call_graph, inputs, is_open=False)
    symbolic = (
        _traced(where, call_graph, inputs, is_open=True)
        if any(map(any, inputs.symbols.values()))
        else largest
    )
    return KerasModel(path, _Graph(path, call_graph, largest, symbolic, inputs).graph(), call_graph)


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


def _inputs(where: str, call_graph: CallGraph, sizes: GivenSizes) -> InputSizes:
    """Return the sizes of the inputs; of a batch that is not given, 1."""
    declared = {
        name: ["?" if size is None else int(size) for size in tensor.shape]
        for name, tensor in call_graph.inputs
    }
    named = {*sizes.fixed, *sizes.at_most}
    batches = {
        f"{name}.0": (1,)
        for name, known in declared.items()
        if known and known[0] == "?" and named.isdisjoint((name, f"{name}.0"))
    }
    completed = GivenSizes({**batches, **sizes.fixed}, sizes.at_most)
    settled, mistakes = settle_inputs(where, declared, completed, example=_EXAMPLE)
    mistakes += [
        Mistake(
            f"{where}: --at-most {quoted(name)}",
            "the model has no such input",
            nearest(name, declared) or "bounds of other tensors follow from those of the inputs",
        )
        for name in settled.others
    ]
    raise_mistakes(mistakes)
    return settled


def _traced(
    where: str, call_graph: CallGraph, inputs: InputSizes, *, is_open: bool
) -> dict[str, Any]:
    """Return tensors of a TensorFlow function for all that the calls read and make.

    Some layers of Keras declare other sizes than those of what they compute. Open sizes have their
    bounds, or with ``is_open`` stay open.
    """
    signature = {
        name: (
            replace_open(inputs.shapes[name], inputs.symbols[name] if is_open else (), None),
            str(tensor.dtype),
        )
        for name, tensor in call_graph.inputs
    }
    tensors: dict[str, Any] = {}
    try:
        with quiet():
            function_of(call_graph.calls, signature, tensors.update)
    except Exception as error:  # a layer that finds these sizes too small, say
        fault = f"a layer cannot work on {'open sizes' if is_open else 'it'}: {first_line(error)}"
        raise_mistakes([Mistake(where, fault, "fix the sizes with --shape" if is_open else "")])
        raise
    return tensors


class _Graph:
    """Makes records of the calls of one model."""

    def __init__(
        self,
        path: Path,
        call_graph: CallGraph,
        largest: Mapping[str, Any],
        symbols: Mapping[str, Any],
        inputs: InputSizes,
    ) -> None:
        """Take tensors of TensorFlow by name: with their bounds, and with open sizes left open."""
        self._path, self._call_graph, self._inputs = path, call_graph, inputs
        self._largest, self._symbols = largest, symbols
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
        shape = tuple(self._largest[name].shape)
        dtype: str = self._largest[name].dtype.name
        if None in shape:
            return Tensor(name, dtype, None)
        symbols = self._inputs.symbols.get(name) or tuple(
            "?" if size is None else "" for size in self._symbols[name].shape
        )
        return Tensor(name, dtype, shape, symbols if any(symbols) else ())

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
    for variable in getattr(operation, "weights", ()):
        if not variable.path.endswith(_SEED):
            yield variable.path.removeprefix(f"{operation.path}/"), variable


def _attributes(operation: Any) -> Iterator[tuple[str, AttributeValue]]:
    try:
        config = operation.get_config()
    except Exception:  # some operations cannot tell
        return
    for name, value in config.items():
        if name in _NOT_SHOWN or value is None:
            continue
        if isinstance(value, int | float | str):
            yield name, value
        elif (
            isinstance(value, list | tuple)
            and len(value) <= _MAX_ATTRIBUTE
            and all(isinstance(item, int) for item in value)
        ):
            yield name, tuple(value)
