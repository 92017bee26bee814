"""A TensorFlow Lite file as a :class:`Graph`, its weights left where they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.graph import (
    RANDOM,
    UNNAMED,
    ByteRange,
    Graph,
    Layer,
    QuantisedInput,
    Tensor,
    Weight,
    dtype_bits,
    unique_names,
    values_bytes,
)
from rankslice.framework.wording import quoted, size_option
from rankslice.frontend.formats.input_shapes import (
    NO_SIZES,
    GivenSizes,
    InputSizes,
    Sizes,
    admits,
    settle_inputs,
)
from rankslice.frontend.formats.pieces import Pieces
from rankslice.frontend.formats.tflite.checks import (
    flow_mistakes,
    header_mistakes,
    reference_mistakes,
)
from rankslice.frontend.formats.tflite.follow import Beginning, followed_shapes
from rankslice.frontend.formats.tflite.operators import attributes, bonds, operator_name, states
from rankslice.frontend.formats.tflite.references import MAIN, Bodies
from rankslice.frontend.formats.tflite.resize import (
    shapes_in_a_run,
    shapes_in_trials,
)
from rankslice.frontend.formats.tflite.schema import OPERATORS
from rankslice.frontend.formats.tflite.shapes import (
    Shape,
    Symbols,
    bound_of,
    dtype_of,
    known_shapes,
    open_tensors,
    trials,
    unbounded_results,
)
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, buffer_contents, read_tables

_RANDOM = frozenset({"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"})
_DETERMINISTIC = frozenset(OPERATORS) - _RANDOM


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A TensorFlow Lite file: its graph, and what its sub-models inherit."""

    path: Path
    graph: Graph
    root: Table
    """The table ``Model``, with all that it refers to."""
    buffers: tuple[ByteRange | Pieces | None, ...]
    """Where the content of each buffer lies; ``None`` for an empty one."""
    tensor_names: tuple[str, ...]
    """Name of each tensor of the main subgraph: its own, if it has one and is the only one."""
    operators_of: Mapping[str, tuple[int, ...]]
    """Numbers of the operators that each layer is, by its name: one, if the layer is of a file."""
    operators: Mapping[str, tuple[str, ...]]
    """Names of the operators that each layer runs, those of bodies included, once each."""
    bodies: tuple[tuple[int, ...], ...]
    """Numbers of the subgraphs that each operator of the main subgraph runs."""
    shapes: Mapping[int, tuple[int, ...]]
    """Largest shapes of the tensors of the main subgraph that are known before a run, by number."""
    symbols: Mapping[int, Symbols]
    """Names of the open sizes of those that have some, by number."""

    @property
    def subgraphs(self) -> tuple[Table, ...]:
        return self.root.tables("subgraphs")

    @property
    def main(self) -> Table:
        return self.subgraphs[MAIN]


def read_tflite(path: Path, sizes: GivenSizes = NO_SIZES) -> TfliteModel:
    """Return the graph of a TensorFlow Lite model file.

    Memory and time do not grow with the weights: they are looked up, not read. What a layer reads
    and nobody makes counts as a weight, whether or not the file has values for it (some custom
    operators are given working memory that way).

    Args:
        sizes: what is given of sizes that the file leaves open; without it an input has the sizes
            that the file gives it, which is 1 for those left open.
    """
    where = str(path)
    with FlatFile(path) as file:
        root = read_tables(file)
        raise_mistakes(header_mistakes(where, root))
        raise_mistakes(reference_mistakes(where, root))
        buffers = buffer_contents(file, root)
    return _Reading(path, root, buffers).model(sizes)


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
        self._kept = [
            frozenset(states(self._subgraphs, operator, inner))
            for operator, inner in zip(self._operators, self._bodies, strict=True)
        ]
        self._run = [
            tuple(
                dict.fromkeys(
                    self._codes[item.number("opcode_index")]
                    for item in (
                        operator,
                        *(o for n in bodies for o in self._subgraphs[n].tables("operators")),
                    )
                )
            )
            for operator, bodies in zip(self._operators, self._bodies, strict=True)
        ]
        self._names = unique_names([(table.text("name"), "tensor") for table in self._tables])
        self._number_of = {name: number for number, name in enumerate(self._names)}
        made = {n for operator in self._operators for n in operator.numbers("outputs")}
        made |= set(self._main.numbers("inputs"))
        self._constants = frozenset(
            number
            for number, table in enumerate(self._tables)
            if number not in made and not table.number("is_variable")
        )

    def model(self, given: GivenSizes) -> TfliteModel:
        shapes, symbols = self._shapes(given)
        tensors = [
            Tensor(name, dtype_of(table), shape, symbols.get(number, ()))
            for number, (name, table, shape) in enumerate(
                zip(self._names, self._tables, shapes, strict=True)
            )
        ]
        return TfliteModel(
            path=self._path,
            graph=self._graph(tensors),
            root=self._root,
            buffers=self._buffers,
            tensor_names=tuple(self._names),
            operators_of={name: (position,) for position, name in enumerate(self._layer_names)},
            operators=dict(zip(self._layer_names, self._run, strict=True)),
            bodies=tuple(self._bodies),
            shapes={n: shape for n, shape in enumerate(shapes) if shape is not None},
            symbols=symbols,
        )

    def _shapes(self, given: GivenSizes) -> tuple[list[Shape | None], dict[int, Symbols]]:
        """Return the largest shape of each tensor, ``None`` if it is not known, and open sizes."""
        where = str(self._path)
        raise_mistakes(flow_mistakes(where, self._main, self._layer_names, self._names))
        shapes = known_shapes(self._main, self._types, self._constants)
        raise_mistakes(self._constant_mistakes())
        inputs = self._inputs(shapes, given)
        raise_mistakes(self._bound_mistakes(shapes, inputs.others))
        bounds = {self._number_of[name]: shape for name, shape in inputs.others.items()}
        raise_mistakes(self._state_mistakes(inputs))
        brought = self._main.numbers("inputs")
        at_inputs = dict(zip(brought, inputs.shapes.values(), strict=True))
        symbols = {
            number: names
            for number, names in zip(brought, inputs.symbols.values(), strict=True)
            if names
        }
        decided = frozenset(n for n, shape in enumerate(shapes) if shape is None) - {*brought}
        if symbols:
            wanted = open_tensors(self._main)
            changed: Mapping[int, Shape | None] = dict.fromkeys(wanted)
        else:
            wanted = decided
            changed = self._resized(shapes, at_inputs) or self._settled(shapes)
            settled = {**dict(enumerate(shapes)), **changed}
            fixed = [n for n in sorted(bounds.keys() - decided) if settled[n] is not None]
            others = [n for n in fixed if settled[n] != bounds[n]]
            raise_mistakes(self._fixed_mistake(n, settled[n] or ()) for n in others)
        bounded = self._largest(at_inputs, symbols, bounds, wanted - {*brought}, decided)
        symbols |= {number: names for number, (_, names) in bounded.items() if names}
        largest = {number: shape for number, (shape, _) in bounded.items()}
        known = {**dict(enumerate(shapes)), **changed, **dict.fromkeys(decided)}
        known |= {**at_inputs, **largest}
        return [known[number] for number in range(len(self._tables))], symbols

    def _inputs(self, shapes: Sequence[Shape | None], given: GivenSizes) -> InputSizes:
        """Return the inputs' sizes, in the model's order: those given, or else the file's."""
        declared: dict[str, Sizes | None] = {}
        of_file: dict[str, Shape] = {}
        for number in self._main.numbers("inputs"):
            name, shape, table = self._names[number], shapes[number], self._tables[number]
            signature = table.numbers("shape_signature") or table.numbers("shape")
            sizes_in_file = ["?" if size < 0 else size for size in signature]
            declared[name] = None if shape is None else sizes_in_file
            names = {name, *(f"{name}.{axis}" for axis in range(len(shape or ())))}
            if shape is not None and names.isdisjoint((*given.fixed, *given.at_most)):
                of_file[name] = shape
        sizes = GivenSizes({**of_file, **given.fixed}, given.at_most)
        settled, mistakes = settle_inputs(str(self._path), declared, sizes)
        raise_mistakes(mistakes)
        return settled

    def _bound_mistakes(
        self, shapes: Sequence[Shape | None], given: Mapping[str, Shape]
    ) -> Iterator[Mistake]:
        for name, shape in given.items():
            if name not in self._number_of:
                here = f"{self._path}: --at-most {quoted(name)}"
                hint = nearest(name, self._number_of)
                yield Mistake(here, "the model has no such tensor", hint)
                continue
            number = self._number_of[name]
            known, declared = shapes[number], self._tables[number].numbers("shape_signature")
            if known is not None and -1 not in declared:
                if known != shape:
                    yield self._fixed_mistake(number, known)
            elif declared and not admits(declared, shape):
                here = f"{self._path}: tensor {quoted(name)}"
                sizes = ", ".join("?" if size < 0 else str(size) for size in declared)
                misfit = f"does not fit the sizes {list(shape)}"
                yield Mistake(here, misfit, f"it is declared as [{sizes}]")

    def _fixed_mistake(self, number: int, shape: Shape) -> Mistake:
        here = f"{self._path}: tensor {quoted(self._names[number])}"
        return Mistake(here, f"all its sizes are fixed: {list(shape)}", "leave it out")

    def _state_mistakes(self, inputs: InputSizes) -> Iterator[Mistake]:
        kept = [state for kept in self._kept for state in sorted(kept) if "variable" in state]
        for name, symbols in inputs.symbols.items() if kept else ():
            if any(symbols):
                here = f"{self._path}: input {quoted(name)}"
                keeps = f"has open sizes, but the model keeps {kept[0]} from frame to frame"
                fixed = f"fix them: {size_option('--shape', name, inputs.shapes[name])}"
                yield Mistake(here, f"{keeps}, which LiteRT clears when sizes change", fixed)

    def _largest(
        self,
        inputs: Mapping[int, Shape],
        symbols: Mapping[int, Symbols],
        bounds: Mapping[int, Shape],
        wanted: frozenset[int],
        decided: frozenset[int],
    ) -> dict[int, tuple[Shape, Symbols]]:
        """Return the largest shapes of tensors, and which of their sizes are open, by number.

        Args:
            decided: those of which the data decide a size.
        """
        wanted |= bounds.keys()
        if not wanted:
            return {}
        made = trials({a for names in symbols.values() for a, name in enumerate(names) if name})
        by_trial = [
            {
                number: trial.shape(shape, symbols.get(number, ()))
                for number, shape in inputs.items()
            }
            for trial in made
        ]
        open_axes = {
            number: tuple(
                UNNAMED if size < 0 else ""
                for size in self._tables[number].numbers("shape_signature") or (-1,) * len(shape)
            )
            for number, shape in bounds.items()
        }
        unbounded = unbounded_results(self._main, self._types)
        in_trials = self._followed(
            [
                Beginning(
                    list(shapes.values()),
                    {n: trial.shape(shape, open_axes[n]) for n, shape in bounds.items()},
                    partial(trial.size, axis=0),
                    unbounded,
                )
                for trial, shapes in zip(made, by_trial, strict=True)
            ]
        )
        if not wanted - decided <= in_trials[0].keys():
            run = shapes_in_trials(self._path, by_trial)
            for known, others in zip(in_trials, run, strict=True):
                known |= {
                    number: shape
                    for number, shape in others.items()
                    if number in wanted - decided and number not in known
                }
        return {
            number: bound
            for number in sorted(wanted)
            if (
                bound := bound_of(
                    self._tables[number],
                    [shapes.get(number) for shapes in in_trials],
                    decided_by_data=number in decided,
                )
            )
        }

    def _graph(self, tensors: Sequence[Tensor]) -> Graph:
        """Return the records of the main subgraph."""
        weights = {
            number: self._weight(self._names[number], self._tables[number])
            for number in sorted(self._constants)
        }
        raise_mistakes(self._weight_mistakes(weights))
        layers = tuple(
            self._layer(position, tensors, weights) for position in range(len(self._operators))
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
            bonds=bonds(self._layer_names, self._kept),
            quantised=tuple(self._quantised()),
        )

    def _quantised(self) -> Iterator[QuantisedInput]:
        """Yield the quantisation of inputs that have one scale for all their values."""
        for number in self._main.numbers("inputs"):
            table = self._tables[number].table("quantization")
            scale = table.numbers("scale") if table else ()
            zero_point = table.numbers("zero_point") if table else ()
            if len(scale) == 1 and len(zero_point) <= 1 and 0 < scale[0] < math.inf:
                yield QuantisedInput(self._names[number], scale[0], sum(zero_point))

    def _resized(
        self, shapes: Sequence[Shape | None], given: Mapping[int, Shape]
    ) -> Mapping[int, Shape | None]:
        wanted = {number: shape for number, shape in given.items() if shape != shapes[number]}
        if not wanted:
            return {}
        (resized,) = shapes_in_trials(self._path, [wanted])
        return {
            number: resized[number]
            for number, table in enumerate(self._tables)
            if number in resized and resized[number] != table.numbers("shape")
        }

    def _settled(self, shapes: Sequence[Shape | None]) -> Mapping[int, Shape | None]:
        """Return the shapes that the file leaves open, for inputs with the sizes that it gives.

        A shape is ``None`` if neither operator rules nor LiteRT tell it.
        """
        wanted = {n for n in open_tensors(self._main) if shapes[n] is not None}
        if not wanted:
            return {}
        of_file = [self._tables[number].numbers("shape") for number in self._main.numbers("inputs")]
        (followed,) = self._followed([Beginning(of_file)])
        if not wanted <= followed.keys():
            followed |= shapes_in_a_run(self._path)
        return {number: followed.get(number) for number in wanted}

    def _followed(self, beginnings: Sequence[Beginning]) -> list[dict[int, Shape]]:
        return followed_shapes(self._path, self._subgraphs, self._codes, self._buffers, beginnings)

    def _weight(self, name: str, table: Table) -> Weight:
        data = self._buffers[table.number("buffer")]
        record = ByteRange(self._path, table.start, table.length)
        nbytes = data.length if data else 0
        quantisation = table.table("quantization")
        is_packed = table.table("sparsity") or (quantisation and quantisation.table("details"))
        plain = None if is_packed else data
        return Weight(name, dtype_of(table), table.numbers("shape"), nbytes, record, plain)

    def _body_weights(self, position: int) -> Iterator[Weight]:
        for number in self._bodies[position]:
            for index, table in enumerate(self._subgraphs[number].tables("tensors")):
                if self._buffers[table.number("buffer")] is not None:
                    yield self._weight(f"{table.text('name')}@{number}.{index}", table)

    def _layer(
        self,
        position: int,
        tensors: Sequence[Tensor],
        weights: Mapping[int, Weight],
    ) -> Layer:
        operator, kind = self._operators[position], self._types[position]
        kinds = frozenset(self._run[position])
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
            # Of custom operators nobody knows whether equal inputs give equal results.
            deterministic=not self._kept[position] and kinds <= _DETERMINISTIC,
            lasting=(
                *sorted(self._kept[position]),
                *((RANDOM,) if kinds & _RANDOM else ()),
            ),
            operands=operands,
            attributes=tuple(attributes(operator)),
        )

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
        for weight in weights.values():
            here = f"{self._path}: weight {quoted(weight.name)}"
            if any(size < 0 for size in weight.shape):
                yield Mistake(here, f"has the negative shape {weight.shape}")
            elif weight.data:
                needed = values_bytes(weight.dtype, weight.shape)
                if dtype_bits(weight.dtype) and weight.nbytes != needed:
                    found = f"holds {weight.nbytes} bytes"
                    yield Mistake(here, found, f"its type and shape need {needed}")
