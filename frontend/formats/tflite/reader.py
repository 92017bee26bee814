"""A TensorFlow Lite file as a :class:`Graph`, its weights left where they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.graph import (
    ByteRange,
    Graph,
    Layer,
    Tensor,
    Weight,
    dtype_bits,
)
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.input_shapes import (
    Sizes,
    open_shape_mistake,
    shape_mistakes,
)
from rankslice.frontend.formats.tflite.bodies import Bodies
from rankslice.frontend.formats.tflite.buffers import buffer_contents
from rankslice.frontend.formats.tflite.checks import (
    flow_mistakes,
    header_mistakes,
    reference_mistakes,
)
from rankslice.frontend.formats.tflite.follow import open_tensors, settled_shapes
from rankslice.frontend.formats.tflite.operators import attributes, operator_name, unique_names
from rankslice.frontend.formats.tflite.resize import resized_shapes, shapes_in_a_run
from rankslice.frontend.formats.tflite.schema import OPERATORS
from rankslice.frontend.formats.tflite.shapes import dtype_of, known_shapes
from rankslice.frontend.formats.tflite.state import bonds, states
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, read_tables

MAIN = 0
"""Number of the subgraph that is sliced; the others are bodies of control flow."""

_RANDOM = frozenset({"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"})
_DETERMINISTIC = frozenset(OPERATORS) - _RANDOM

_MAX_SHOWN = 20
"""Mistakes of one kind that are shown: a damaged file can have one for each of its layers."""


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A TensorFlow Lite file: its graph, and what its sub-models inherit."""

    path: Path
    graph: Graph
    root: Table
    """The table ``Model``, with all that it refers to."""
    buffers: tuple[ByteRange | None, ...]
    """Where the content of each buffer lies; ``None`` for an empty one."""
    tensor_names: tuple[str, ...]
    """Name of each tensor of the main subgraph: its own, if it has one and is the only one."""
    operator_of: Mapping[str, int]
    """Number of the operator that each layer is, by the layer's name."""
    bodies: tuple[tuple[int, ...], ...]
    """Numbers of the subgraphs that each operator of the main subgraph runs."""
    shapes: Mapping[int, tuple[int, ...]]
    """Shapes of the tensors of the main subgraph that are known before a run, by number."""

    @property
    def subgraphs(self) -> tuple[Table, ...]:
        """All subgraphs, the main one first."""
        return self.root.tables("subgraphs")

    @property
    def main(self) -> Table:
        """The subgraph that is sliced."""
        return self.subgraphs[MAIN]


def read_tflite(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> TfliteModel:
    """Return the graph of a TensorFlow Lite model file.

    Memory and time do not grow with the weights: they are looked up, not read. What a layer reads
    and nobody makes counts as a weight, whether or not the file has values for it (some custom
    operators are given working memory that way).

    Args:
        path: the model file.
        shapes: sizes of inputs that the file leaves open, by the input's name; without them an
            input has the sizes that the file gives it, which is 1 for those left open.

    Raises:
        RankSliceError: the file is not a TensorFlow Lite model, or one that cannot be sliced: all
            mistakes that the first failing check finds.
    """
    where = str(path)
    with FlatFile(path) as file:
        root = read_tables(file)
        raise_mistakes(header_mistakes(where, root))
        raise_mistakes(reference_mistakes(where, root))
        buffers = buffer_contents(file, root)
    return _Reading(path, root, buffers).model(shapes or {})


class _Reading:
    """Makes records of the tables of one file."""

    def __init__(self, path: Path, root: Table, buffers: tuple[ByteRange | None, ...]) -> None:
        self._path, self._root, self._buffers = path, root, buffers
        self._subgraphs = root.tables("subgraphs")
        self._main = self._subgraphs[MAIN]
        self._tables = self._main.tables("tensors")
        self._operators = self._main.tables("operators")
        self._codes = [operator_name(code) for code in root.tables("operator_codes")]
        self._types = [self._codes[operator.number("opcode_index")] for operator in self._operators]
        self._layer_names = [f"{kind}_{index}" for index, kind in enumerate(self._types)]
        bodies = Bodies(str(path), self._subgraphs)
        self._bodies = [bodies.of(operator) for operator in self._operators]
        self._names = unique_names([table.text("name") for table in self._tables])

    def model(self, given: Mapping[str, tuple[int, ...]]) -> TfliteModel:
        shapes = self._shapes(given)
        tensors = [self._tensor(shapes, number) for number in range(len(self._tables))]
        return TfliteModel(
            path=self._path,
            graph=self._graph(tensors),
            root=self._root,
            buffers=self._buffers,
            tensor_names=tuple(self._names),
            operator_of={name: position for position, name in enumerate(self._layer_names)},
            bodies=tuple(self._bodies),
            shapes={n: shape for n, shape in enumerate(shapes) if shape is not None},
        )

    def _shapes(self, given: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...] | None]:
        """Return the shape of each tensor for inputs of the given shapes; ``None``: not known.

        Raises:
            RankSliceError: layers or inputs are wrong, or shapes do not fit.
        """
        where = str(self._path)
        wrong = flow_mistakes(where, self._main, self._layer_names, self._names)
        raise_mistakes(islice(wrong, _MAX_SHOWN))
        shapes = known_shapes(self._main, self._types, self._constants())
        brought = self._main.numbers("inputs")
        inputs = [self._tensor(shapes, number) for number in brought]
        raise_mistakes(islice(self._constant_mistakes(), _MAX_SHOWN))
        raise_mistakes(self._input_mistakes(inputs, given))
        changed = self._resized(inputs, given) or self._settled(shapes)
        return [
            shape if shape is None and number not in brought else changed.get(number, shape)
            for number, shape in enumerate(shapes)
        ]

    def _input_mistakes(
        self, inputs: Sequence[Tensor], given: Mapping[str, tuple[int, ...]]
    ) -> Iterator[Mistake]:
        """Yield shapes that the user gives and that do not fit, and inputs that need one."""
        where, numbers = str(self._path), self._main.numbers("inputs")
        declared = {
            tensor.name: _declared(self._tables[number])
            for number, tensor in zip(numbers, inputs, strict=True)
        }
        yield from shape_mistakes(where, declared, given)
        for tensor in inputs:
            if tensor.shape is None and tensor.name not in given:
                yield open_shape_mistake(where, tensor.name, declared[tensor.name])

    def _graph(self, tensors: Sequence[Tensor]) -> Graph:
        """Return the records of the main subgraph.

        Raises:
            RankSliceError: weights are not as large as their types and shapes say.
        """
        kept = [
            states(self._subgraphs, operator, bodies)
            for operator, bodies in zip(self._operators, self._bodies, strict=True)
        ]
        weights = self._weights()
        raise_mistakes(islice(self._weight_mistakes(weights), _MAX_SHOWN))
        layers = tuple(
            self._layer(position, tensors, weights, bool(kept[position]))
            for position in range(len(self._operators))
        )
        outputs = tuple(dict.fromkeys(self._main.numbers("outputs")))
        used = [weight for layer in layers for weight in layer.weights]
        used += [weights[number] for number in outputs if number in weights]
        return Graph(
            name=self._path.name,
            format="tflite",
            layers=layers,
            inputs=tuple(tensors[number] for number in self._main.numbers("inputs")),
            outputs=tuple(tensors[number] for number in outputs),
            weights=tuple(dict.fromkeys(used)),
            bonds=bonds(self._layer_names, kept),
        )

    def _resized(
        self, inputs: Sequence[Tensor], given: Mapping[str, tuple[int, ...]]
    ) -> dict[int, tuple[int, ...] | None]:
        """Return the shapes of the tensors that have others once the inputs have the given ones."""
        numbers = self._main.numbers("inputs")
        wanted = {
            number: given[tensor.name]
            for number, tensor in zip(numbers, inputs, strict=True)
            if given.get(tensor.name, tensor.shape) != tensor.shape
        }
        if not wanted:
            return {}
        found = resized_shapes(self._path, wanted)
        return {
            number: found[number]
            for number, table in enumerate(self._tables)
            if number in found and found[number] != table.numbers("shape")
        }

    def _settled(
        self, shapes: Sequence[tuple[int, ...] | None]
    ) -> dict[int, tuple[int, ...] | None]:
        """Return the shapes that the file leaves open, for inputs with the sizes that it gives.

        A shape is ``None`` if neither operator rules nor LiteRT tell it.
        """
        wanted = {n for n in open_tensors(self._main) if shapes[n] is not None}
        if not wanted:
            return {}
        found = settled_shapes(self._path, self._subgraphs, self._codes, self._buffers)
        if not wanted <= found.keys():
            found |= shapes_in_a_run(self._path)
        return {number: found.get(number) for number in wanted}

    def _constants(self) -> frozenset[int]:
        """Return the numbers of the tensors that nobody makes."""
        known = {n for operator in self._operators for n in operator.numbers("outputs")}
        known |= set(self._main.numbers("inputs"))
        return frozenset(
            number
            for number, table in enumerate(self._tables)
            if number not in known and not table.number("is_variable")
        )

    def _tensor(self, shapes: Sequence[tuple[int, ...] | None], number: int) -> Tensor:
        return Tensor(self._names[number], dtype_of(self._tables[number]), shapes[number])

    def _weights(self) -> dict[int, Weight]:
        """Return the constants of the main subgraph by the tensor's number."""
        return {
            number: self._weight(self._names[number], self._tables[number])
            for number in sorted(self._constants())
        }

    def _weight(self, name: str, table: Table) -> Weight:
        data = self._buffers[table.number("buffer")]
        record = ByteRange(self._path, table.start, table.length)
        nbytes = data.length if data else 0
        return Weight(name, dtype_of(table), table.numbers("shape"), nbytes, record, data)

    def _body_weights(self, position: int) -> Iterator[Weight]:
        """Yield the constants that stand in the subgraphs which an operator runs."""
        for number in self._bodies[position]:
            for index, table in enumerate(self._subgraphs[number].tables("tensors")):
                if self._buffers[table.number("buffer")] is not None:
                    yield self._weight(f"{table.text('name')}@{number}.{index}", table)

    def _layer(
        self,
        position: int,
        tensors: Sequence[Tensor],
        weights: Mapping[int, Weight],
        has_state: bool,
    ) -> Layer:
        operator, kind = self._operators[position], self._types[position]
        read = dict.fromkeys(number for number in operator.numbers("inputs") if number >= 0)
        operands = tuple(
            None if number < 0 else weights.get(number, tensors[number])
            for number in operator.numbers("inputs")
        )
        brought = [
            number
            for number in read
            if number not in weights and not self._tables[number].number("is_variable")
        ]
        own = [weights[number] for number in read if number in weights]
        return Layer(
            name=self._layer_names[position],
            op=kind,
            inputs=tuple(tensors[number] for number in brought),
            outputs=tuple(tensors[number] for number in operator.numbers("outputs") if number >= 0),
            weights=tuple(dict.fromkeys((*own, *self._body_weights(position)))),
            record=ByteRange(self._path, operator.start, operator.length),
            deterministic=not has_state and self._is_deterministic(position),
            operands=operands,
            attributes=tuple(attributes(operator)),
        )

    def _is_deterministic(self, position: int) -> bool:
        """Return whether equal inputs give equal results; of custom operators nobody knows."""
        bodies = [self._subgraphs[number] for number in self._bodies[position]]
        inner = [item for body in bodies for item in body.tables("operators")]
        operators = (self._operators[position], *inner)
        kinds = {self._codes[operator.number("opcode_index")] for operator in operators}
        return kinds <= _DETERMINISTIC

    def _constant_mistakes(self) -> Iterator[Mistake]:
        for number in self._main.numbers("inputs"):
            here = f"{self._path}: input {quoted(self._names[number])}"
            if self._buffers[self._tables[number].number("buffer")] is not None:
                yield Mistake(here, "is a constant", "expected a tensor that a frame brings")
            elif self._tables[number].number("is_variable"):
                yield Mistake(here, "is a variable", "expected a tensor that a frame brings")
        for name, operator in zip(self._layer_names, self._operators, strict=True):
            for number in operator.numbers("outputs"):
                if number >= 0 and self._buffers[self._tables[number].number("buffer")]:
                    here = f"{self._path}: tensor {quoted(self._names[number])}"
                    yield Mistake(here, f"is a constant, and layer {quoted(name)} makes it")

    def _weight_mistakes(self, weights: Mapping[int, Weight]) -> Iterator[Mistake]:
        """Yield the weights that have not as many bytes as their types and shapes need."""
        for number, weight in weights.items():
            here = f"{self._path}: weight {quoted(weight.name)}"
            bits = dtype_bits(weight.dtype)
            if any(size < 0 for size in weight.shape):
                yield Mistake(here, f"has the negative shape {weight.shape}")
            elif weight.data and bits and self._tables[number].table("sparsity") is None:
                needed = (math.prod(weight.shape) * bits + 7) // 8
                if weight.nbytes != needed:
                    found = f"holds {weight.nbytes} bytes"
                    yield Mistake(here, found, f"its type and shape need {needed}")


def _declared(table: Table) -> Sizes:
    """Return the sizes that a tensor can have."""
    sizes = table.numbers("shape_signature") or table.numbers("shape")
    return ["?" if size < 0 else size for size in sizes]
