"""The model object of a TensorFlow Lite file: what stands in its tables, as the schema has it.

Unlike :func:`rankslice.frontend.formats.tflite.reader.read_tflite` this needs
nothing that slicing needs: a model that is compiled for an accelerator can be looked at, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankslice.framework.errors import raise_mistakes
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.tflite.buffers import buffer_contents, large_options
from rankslice.frontend.formats.tflite.checks import reference_mistakes
from rankslice.frontend.formats.tflite.operators import operator_name
from rankslice.frontend.formats.tflite.schema import OPERATORS
from rankslice.frontend.formats.tflite.settings import Setting, settings
from rankslice.frontend.formats.tflite.shapes import dtype_of
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, read_tables

_CUSTOM = OPERATORS.index("CUSTOM")


@dataclass(frozen=True, slots=True)
class OperatorCodeEntry:
    """A kind of operator that a runtime must have to run the model."""

    name: str
    """Of the builtin operator; ``CUSTOM`` for all others."""
    number: int
    """In the schema's list of builtin operators."""
    custom_code: str
    """Name of a custom operator; empty for builtin ones."""
    version: int
    uses: int
    """Operators of this kind, in all subgraphs."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What the integers in a tensor mean: ``scale * (value - zero_point)``."""

    scale: tuple[float, ...]
    """One for the tensor, or one per slice along :attr:`axis`."""
    zero_point: tuple[int, ...]
    minimum: tuple[float, ...]
    """Smallest value seen by who quantised; empty if unknown."""
    maximum: tuple[float, ...]
    axis: int | None
    """Dimension along which each slice has its own scale; ``None``: one scale for all."""
    details: str
    """Name of the table with parameters of another kind; empty: there is none."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a subgraph."""

    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None
    """Sizes with -1 where any is possible; ``None``: :attr:`shape` is fixed."""
    buffer: int
    """Number of the buffer with its values; an empty one if it has none before a run."""
    constant_bytes: int
    """Size of these values in the file."""
    is_variable: bool
    is_sparse: bool
    quantisation: Quantisation | None


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """An operator of a subgraph; operators stand in the order in which they run."""

    number: int
    name: str
    opcode: int
    """Number of its operator code."""
    inputs: tuple[int, ...]
    """Numbers of tensors of the subgraph; -1: an input that is left out."""
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options_type: str
    """Name of the table with its settings; empty: it has none."""
    options: Mapping[str, Setting]
    custom_options_bytes: int
    """Size of a custom operator's settings, which only its kernel understands."""


@dataclass(frozen=True, slots=True)
class SubgraphEntry:
    """A graph; number 0 is the model, others are bodies of control flow or further entries."""

    number: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[TensorEntry, ...]
    operators: tuple[OperatorEntry, ...]


@dataclass(frozen=True, slots=True)
class BufferEntry:
    """Constant data."""

    number: int
    bytes: int
    offset: int | None
    """Where it stands in the file; ``None``: it is empty."""
    users: tuple[str, ...]
    """Who refers to it: ``subgraph.tensor`` by number, or a name of metadata."""


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """A named note; its content is a buffer."""

    name: str
    buffer: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SignatureEntry:
    """Names by which programs call a subgraph and its inputs and outputs."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    """Numbers of tensors, by name."""
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ModelObject:
    """All of a file's tables."""

    file: str
    """Name of the file."""
    file_bytes: int
    schema_version: int
    description: str
    operator_codes: tuple[OperatorCodeEntry, ...]
    subgraphs: tuple[SubgraphEntry, ...]
    buffers: tuple[BufferEntry, ...]
    metadata: tuple[MetadataEntry, ...]
    signatures: tuple[SignatureEntry, ...]
    external_buffer_groups: tuple[str, ...]
    """Names of other files in which weights lie."""


def read_object(path: Path) -> ModelObject:
    """Return the model object of a TensorFlow Lite file, without its weights.

    Raises:
        RankSliceError: the file is not a TensorFlow Lite model, or its tables name things that it
            does not have.
    """
    with FlatFile(path) as file:
        root = read_tables(file)
        raise_mistakes(reference_mistakes(str(path), root))
        return _Reading(path, file.size, root, buffer_contents(file, root)).entries()


class _Reading:
    """Makes entries of the tables of one file."""

    def __init__(
        self, path: Path, size: int, root: Table, buffers: tuple[ByteRange | None, ...]
    ) -> None:
        self._path, self._size, self._root, self._buffers = path, size, root, buffers
        self._codes = root.tables("operator_codes")

    def entries(self) -> ModelObject:
        subgraphs = tuple(
            self._subgraph(number, table)
            for number, table in enumerate(self._root.tables("subgraphs"))
        )
        return ModelObject(
            file=self._path.name,
            file_bytes=self._size,
            schema_version=self._root.number("version"),
            description=self._root.text("description"),
            operator_codes=self._operator_codes(subgraphs),
            subgraphs=subgraphs,
            buffers=self._buffer_entries(subgraphs),
            metadata=tuple(self._metadata()),
            signatures=tuple(map(_signature, self._root.tables("signature_defs"))),
            external_buffer_groups=tuple(
                group.text("name") for group in self._root.tables("external_buffer_groups")
            ),
        )

    def _bytes(self, buffer: int) -> int:
        data = self._buffers[buffer]
        return data.length if data else 0

    def _operator_codes(
        self, subgraphs: tuple[SubgraphEntry, ...]
    ) -> tuple[OperatorCodeEntry, ...]:
        uses = Counter(item.opcode for subgraph in subgraphs for item in subgraph.operators)
        return tuple(
            OperatorCodeEntry(
                name="CUSTOM" if _builtin(code) == _CUSTOM else operator_name(code),
                number=_builtin(code),
                custom_code=code.text("custom_code"),
                version=code.number("version", 1),
                uses=uses[number],
            )
            for number, code in enumerate(self._codes)
        )

    def _subgraph(self, number: int, table: Table) -> SubgraphEntry:
        return SubgraphEntry(
            number=number,
            name=table.text("name"),
            inputs=table.numbers("inputs"),
            outputs=table.numbers("outputs"),
            tensors=tuple(
                self._tensor(index, tensor) for index, tensor in enumerate(table.tables("tensors"))
            ),
            operators=tuple(
                self._operator(index, operator)
                for index, operator in enumerate(table.tables("operators"))
            ),
        )

    def _tensor(self, number: int, table: Table) -> TensorEntry:
        return TensorEntry(
            number=number,
            name=table.text("name"),
            dtype=dtype_of(table),
            shape=table.numbers("shape"),
            shape_signature=table.numbers("shape_signature") or None,
            buffer=table.number("buffer"),
            constant_bytes=self._bytes(table.number("buffer")),
            is_variable=bool(table.number("is_variable")),
            is_sparse=table.table("sparsity") is not None,
            quantisation=_quantisation(table.table("quantization")),
        )

    def _operator(self, number: int, table: Table) -> OperatorEntry:
        options = table.table("builtin_options") or table.table("builtin_options2")
        custom = table.payload("custom_options") or large_options(self._path, table)
        return OperatorEntry(
            number=number,
            name=operator_name(self._codes[table.number("opcode_index")]),
            opcode=table.number("opcode_index"),
            inputs=table.numbers("inputs"),
            outputs=table.numbers("outputs"),
            intermediates=table.numbers("intermediates"),
            options_type=options.kind if options else "",
            options=settings(options) if options else {},
            custom_options_bytes=custom.length if custom else 0,
        )

    def _buffer_entries(self, subgraphs: tuple[SubgraphEntry, ...]) -> tuple[BufferEntry, ...]:
        users: dict[int, list[str]] = defaultdict(list)
        for subgraph in subgraphs:
            for tensor in subgraph.tensors:
                users[tensor.buffer].append(f"{subgraph.number}.{tensor.number}")
        for entry in self._metadata():
            users[entry.buffer].append(entry.name)
        return tuple(
            BufferEntry(
                number=number,
                bytes=data.length if data else 0,
                offset=data.offset if data else None,
                users=tuple(users[number]),
            )
            for number, data in enumerate(self._buffers)
        )

    def _metadata(self) -> Iterator[MetadataEntry]:
        for entry in self._root.tables("metadata"):
            buffer = entry.number("buffer")
            yield MetadataEntry(entry.text("name"), buffer, self._bytes(buffer))


def _builtin(code: Table) -> int:
    return max(code.number("deprecated_builtin_code"), code.number("builtin_code"))


def _quantisation(table: Table | None) -> Quantisation | None:
    """Return parameters, unless the table has none, as converters write it for floats."""
    if table is None:
        return None
    details = table.table("details")
    scale = table.numbers("scale")
    found = Quantisation(
        scale=scale,
        zero_point=table.numbers("zero_point"),
        minimum=table.numbers("min"),
        maximum=table.numbers("max"),
        axis=table.number("quantized_dimension") if len(scale) > 1 else None,
        details=details.kind if details else "",
    )
    return found if scale or found.minimum or found.maximum or details else None


def _signature(table: Table) -> SignatureEntry:
    return SignatureEntry(
        key=table.text("signature_key"),
        subgraph=table.number("subgraph_index"),
        inputs=_tensor_map(table, "inputs"),
        outputs=_tensor_map(table, "outputs"),
    )


def _tensor_map(table: Table, side: str) -> dict[str, int]:
    return {entry.text("name"): entry.number("tensor_index") for entry in table.tables(side)}
